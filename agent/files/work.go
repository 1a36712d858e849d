package files

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"atoll/agent/fault"
	"atoll/agent/user"
)

// ListMost is how many entries a listing may have.
const ListMost = 100_000

// Work does file operations for one user. Its methods take absolute paths.
type Work struct {
	Account *user.Account
	Users   *user.Database
	// Gives: the agent makes files that the user may not make, and gives them to the user, as E2B's own agent does.
	Gives bool
}

// Stat describes a file, a symbolic link itself unless it is to be followed.
func (w Work) Stat(path string, follow bool) (file File, err error) {
	look := os.Lstat
	if follow {
		look = os.Stat
	}
	err = w.Account.Act(func() error {
		info, err := look(path)
		if err == nil {
			file = describe(path, info, w.Users)
		}
		return err
	})
	return file, Named(err, path)
}

func (w Work) stat(path string) (File, error) {
	info, err := os.Lstat(path)
	if err != nil {
		return File{}, err
	}
	return describe(path, info, w.Users), nil
}

// Visit gets each entry of a walk; it runs with the user's rights.
type Visit func(path string, info fs.FileInfo)

// List describes that many levels of a directory in lexical order, a directory before what is in it.
func (w Work) List(path string, depth int) ([]File, error) {
	found := []File{}
	err := w.Walk(path, depth, func(below string, info fs.FileInfo) {
		found = append(found, describe(below, info, w.Users))
	})
	return found, err
}

// Walk visits that many levels of a directory in lexical order, a directory before what is in it.
func (w Work) Walk(path string, depth int, visit Visit) error {
	return Named(w.Account.Act(func() error {
		if err := isDirectory(path); err != nil {
			return err
		}
		left := ListMost
		return walk(path, max(depth, 1), &left, visit)
	}), path)
}

func isDirectory(path string) error {
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	if !info.IsDir() {
		return fault.New(fault.NotADirectory, "path is not a directory: %s", path)
	}
	return nil
}

func walk(path string, depth int, left *int, visit Visit) error {
	entries, err := os.ReadDir(path)
	if err != nil {
		return err
	}
	for _, entry := range entries {
		below := filepath.Join(path, entry.Name())
		info, err := entry.Info()
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return err
		}
		if *left--; *left < 0 {
			return fault.New(fault.FileFailed, "more than %d entries; give a smaller depth", ListMost)
		}
		visit(below, info)
		if entry.IsDir() && depth > 1 {
			err := walk(below, depth-1, left, visit)
			if err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, fs.ErrPermission) {
				return err
			}
		}
	}
	return nil
}

// MakeDirectory makes a directory. With parents it makes those too, and an existing one is no error.
func (w Work) MakeDirectory(path string, parents bool) (file File, err error) {
	err = w.Account.Act(func() error {
		made := os.Mkdir
		if parents {
			made = os.MkdirAll
		}
		if err := made(path, 0o755); err != nil {
			return err
		}
		file, err = w.stat(path)
		return err
	})
	if parents && w.gives(err) {
		file, err = w.makeDirectoryGiven(path)
	}
	return file, Named(err, path)
}

// Move renames a file; parents makes the directories above its new name.
func (w Work) Move(path, to string, parents bool) (file File, err error) {
	err = w.Account.Act(func() error {
		if _, err := os.Lstat(path); err != nil {
			return err
		}
		if parents {
			if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
				return err
			}
		}
		if err := w.rename(path, to); err != nil {
			return err
		}
		file, err = w.stat(to)
		return err
	})
	return file, Named(err, path)
}

func (w Work) rename(path, to string) error {
	err := os.Rename(path, to)
	if !errors.Is(err, syscall.EXDEV) {
		return err
	}
	if err := copyAcross(path, to); err != nil {
		return err
	}
	return os.RemoveAll(path)
}

// Remove removes a file or a directory with all that is in it.
func (w Work) Remove(path string) error {
	return Named(w.Account.Act(func() error {
		if path == "/" {
			return fault.New(fault.Denied, "the root directory cannot be removed")
		}
		if _, err := os.Lstat(path); err != nil {
			return err
		}
		return os.RemoveAll(path)
	}), path)
}

// Named gives an error its code and its path.
func Named(err error, path string) error {
	if err == nil {
		return nil
	}
	var known *fault.Fault
	if errors.As(err, &known) {
		return known
	}
	code := fault.Of(err).Code
	var where *fs.PathError
	reason := err
	if errors.As(err, &where) {
		path, reason = where.Path, where.Err
	}
	if code == fault.FileMissing {
		return fault.New(code, "path '%s' does not exist", path)
	}
	return fault.New(code, "%s: %v", path, reason)
}
