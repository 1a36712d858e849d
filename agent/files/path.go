// Package files does the file work of requests with the rights of their users.
package files

import (
	"path/filepath"
	"strings"

	"atoll/agent/fault"
	"atoll/agent/user"
)

// Resolve makes a request's path absolute: relative ones start at base, `~` is the user's home.
func Resolve(path, base string, account *user.Account, users *user.Database) (string, error) {
	if strings.ContainsRune(path, 0) {
		return "", fault.New(fault.Invalid, "a path cannot contain a zero byte")
	}
	switch {
	case path == "":
		return filepath.Clean(base), nil
	case filepath.IsAbs(path):
		return filepath.Clean(path), nil
	case path[0] == '~':
		name, rest, _ := strings.Cut(path[1:], "/")
		if name == "" {
			return filepath.Join(account.Home, rest), nil
		}
		if other, err := users.Lookup(name); err == nil {
			return filepath.Join(other.Home, rest), nil
		}
	}
	return filepath.Join(base, path), nil
}
