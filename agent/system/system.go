// Package system sets what belongs to the whole guest: its name, its resolver, the certificates that it trusts.
package system

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"atoll/agent/fault"
	"atoll/agent/regular"
)

// System is the guest below Root; with a Root other than "/" only files are touched.
type System struct {
	Root string

	trusted *string
}

// Identity is what a guest is told about itself; nil leaves a value as it is.
type Identity struct {
	Hostname   *string
	MachineID  *string
	Nameserver *string
	Entropy    []byte
}

const hostsMark = "# atoll"

// Apply sets what the identity holds.
func (s *System) Apply(identity Identity) error {
	for _, step := range []func(Identity) error{s.hostname, s.files, s.entropy} {
		if err := step(identity); err != nil {
			return err
		}
	}
	return nil
}

// MachineID is the one that the guest has, empty when it has none.
func (s *System) MachineID() string {
	text, err := regular.Read(s.path("/etc/machine-id"))
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(text))
}

func (s *System) path(name string) string { return filepath.Join(s.Root, name) }

func (s *System) hostname(identity Identity) error {
	if identity.Hostname == nil {
		return nil
	}
	name := *identity.Hostname
	if name == "" || len(name) > 64 || strings.ContainsAny(name, " \t\n\x00") {
		return fault.New(fault.Invalid, "%q is not a host name", name)
	}
	if s.Root == "/" {
		if err := syscall.Sethostname([]byte(name)); err != nil {
			return fault.New(fault.Internal, "set the host name: %v", err)
		}
	}
	if err := write(s.path("/etc/hostname"), name+"\n", 0o644); err != nil {
		return err
	}
	return s.hosts(name)
}

// hosts keeps the lines that others wrote into /etc/hosts.
func (s *System) hosts(name string) error {
	path := s.path("/etc/hosts")
	old, err := regular.Read(path)
	if err != nil && !errors.Is(err, os.ErrNotExist) && !errors.Is(err, os.ErrInvalid) {
		return err
	}
	var text strings.Builder
	localhost := false
	for line := range strings.Lines(string(old)) {
		if strings.Contains(line, hostsMark) {
			continue
		}
		fields := strings.Fields(line)
		localhost = localhost || len(fields) > 1 && fields[0] == "127.0.0.1" && strings.Contains(line, "localhost")
		text.WriteString(strings.TrimRight(line, "\n") + "\n")
	}
	lines := "127.0.1.1\t" + name + "\t" + hostsMark + "\n"
	if !localhost {
		lines = "127.0.0.1\tlocalhost\n::1\tlocalhost ip6-localhost ip6-loopback\n" + lines
	}
	return write(path, lines+text.String(), 0o644)
}

func (s *System) files(identity Identity) error {
	if identity.MachineID != nil {
		if err := write(s.path("/etc/machine-id"), *identity.MachineID+"\n", 0o444); err != nil {
			return err
		}
	}
	if identity.Nameserver != nil {
		text := "nameserver " + *identity.Nameserver + "\noptions edns0\n"
		if err := write(s.path("/etc/resolv.conf"), text, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// Provide makes the directory in which programs are to start, which some images name without having it. Where it cannot
// be made they start elsewhere.
func (s *System) Provide(directory string) {
	if filepath.IsAbs(directory) {
		_ = os.MkdirAll(s.path(directory), 0o755)
	}
}

func (s *System) entropy(identity Identity) error {
	if len(identity.Entropy) == 0 || s.Root != "/" {
		return nil
	}
	// A kernel that takes its random bytes from the host has no pool to write to.
	if info, err := os.Stat("/dev/urandom"); err == nil && info.Mode()&os.ModeCharDevice != 0 {
		_ = os.WriteFile("/dev/urandom", identity.Entropy, 0)
	}
	return nil
}

// write replaces a file at once; one that is a mount point is written in place.
func write(path, text string, mode os.FileMode) error {
	if old, err := regular.Read(path); err == nil && string(old) == text {
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	aside := path + ".atoll"
	err := regular.Create(aside, []byte(text), mode)
	if err == nil {
		err = os.Chmod(aside, mode)
	}
	if err == nil {
		err = os.Rename(aside, path)
	}
	if err == nil {
		return nil
	}
	if gone := os.Remove(aside); gone != nil && !errors.Is(gone, os.ErrNotExist) {
		return gone
	}
	if isFull(err) { // the old text is better than a part of the new one
		return err
	}
	file, err := regular.Open(path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, mode)
	if err != nil {
		return err
	}
	_, err = file.WriteString(text)
	return errors.Join(err, file.Close())
}
