package system

import (
	"errors"
	"io/fs"
	"maps"
	"slices"
	"strings"

	"atoll/agent/regular"
)

const (
	environmentFile = "/etc/environment"
	trustProfile    = "/etc/profile.d/atoll-trust.sh"
	trustSudo       = "/etc/sudoers.d/atoll-trust"
)

// shells keep an environment where programs do not have the agent's: below sudo, su, cron and sshd, and in login shells
// that begin with an empty one. Images without these files have no such programs.
func (s *System) shells(env map[string]string) error {
	var lines, exports strings.Builder
	names := slices.Sorted(maps.Keys(env))
	for _, name := range names {
		lines.WriteString(name + "=" + env[name] + "\n")
		exports.WriteString("export " + name + `="${` + name + "-" + env[name] + "}\"\n")
	}
	old, err := regular.Read(s.path(environmentFile))
	if err == nil {
		err = write(s.path(environmentFile), withSection(string(old), lines.String()), 0o644)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, fs.ErrInvalid) {
		return err
	}
	if s.has("/etc/profile.d") {
		if err := s.put(trustProfile, exports.String(), 0o644); err != nil {
			return err
		}
	}
	if !s.has("/etc/sudoers.d") {
		return nil
	}
	kept := ""
	if len(env) > 0 {
		kept = "Defaults env_keep += \"" + strings.Join(names, " ") + "\"\n"
	}
	return s.put(trustSudo, kept, 0o440)
}
