package settings

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Read last of all that a distribution's own /etc/profile reads, which gives each login shell a search path of its own.
const profileFile = "etc/profile.d/zz-atoll.sh"

// With this variable the file does nothing: Logins wants the profiles' own path.
const withoutProfile = "ATOLL_PLAIN_PROFILE"

// profile has login shells keep the host's search path, as the shell lines of Logins do.
type profile struct {
	root    string
	written string
}

// keep writes the file for a search path, or removes it where none is needed. Images without the directory have no such
// shells, and a failed write is no reason to end a sandbox.
func (p *profile) keep(path string) {
	if isOrdinary(path) {
		path = ""
	}
	if path == p.written {
		return
	}
	name := filepath.Join(p.root, profileFile)
	if path == "" {
		_ = os.Remove(name)
	} else if err := replace(name, profileText(path)); err != nil {
		return
	}
	p.written = path
}

// isOrdinary tells whether any login shell's search path has all of a path.
func isOrdinary(path string) bool {
	known := strings.Split(DefaultPath, ":")
	return path == "" || !slices.ContainsFunc(strings.Split(path, ":"), func(one string) bool {
		return !slices.Contains(known, one)
	})
}

func profileText(path string) string {
	quoted := "'" + strings.ReplaceAll(path, "'", `'\''`) + "'"
	return "# Written by atoll: a login shell has the search path of its sandbox, and what a profile adds to that.\n" +
		"[ -n \"${" + withoutProfile + `-}" ] || case ":$PATH:" in *:` + quoted + ":*) ;; *) export PATH=" + quoted + " ;; esac\n"
}

func replace(name, text string) error {
	aside := filepath.Join(filepath.Dir(name), ".zz-atoll.new")
	_ = os.Remove(aside)
	file, err := os.OpenFile(aside, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return err
	}
	if _, err = file.WriteString(text); err == nil {
		err = file.Chmod(0o644)
	}
	if closed := file.Close(); err == nil {
		err = closed
	}
	if err == nil {
		err = os.Rename(aside, name)
	}
	if err != nil {
		_ = os.Remove(aside)
	}
	return err
}
