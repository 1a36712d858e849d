package files

import (
	"archive/tar"
	"bufio"
	"context"
	"errors"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"atoll/agent/fault"
	"atoll/agent/user"
)

// writtenMost is how many files one request may write.
const writtenMost = 100_000

// shownMost is how much of a path that is too long an error shows.
const shownMost = 200

// Copy copies a file or a directory with all that is in it; parents makes the directories above its new name. A file
// that has the new name is replaced.
func (w Work) Copy(path, to string, parents bool) (file File, err error) {
	err = w.Account.Act(func() error {
		if to == path || strings.HasPrefix(to, strings.TrimSuffix(path, "/")+"/") {
			return fault.New(fault.Invalid, "%s cannot be copied to %s, which is the same or in it", path, to)
		}
		if _, err := os.Lstat(path); err != nil {
			return err
		}
		if parents {
			if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
				return err
			}
		}
		if err := w.copyInPlace(path, to); err != nil {
			return err
		}
		file, err = w.stat(to)
		return err
	})
	return file, Named(err, path)
}

// copyInPlace makes a copy beside its place and then moves it there, so that there is all of it or nothing.
func (w Work) copyInPlace(path, to string) error {
	if info, err := os.Lstat(to); err == nil && info.IsDir() {
		return fault.New(fault.FileTaken, "%s is a directory", to)
	}
	beside := filepath.Join(filepath.Dir(to), ".atoll-"+strconv.FormatUint(rand.Uint64(), 36))
	defer os.RemoveAll(beside)
	if err := copyAcross(path, beside); err != nil {
		return err
	}
	return os.Rename(beside, to)
}

// Chmod sets permission bits: of a link's target, and with recursive of everything in a directory, but not through links.
func (w Work) Chmod(ctx context.Context, path string, mode uint32, recursive bool) error {
	bits := fs.FileMode(mode & 0o777)
	for bit, flag := range map[uint32]fs.FileMode{0o4000: fs.ModeSetuid, 0o2000: fs.ModeSetgid, 0o1000: fs.ModeSticky} {
		if mode&bit != 0 {
			bits |= flag
		}
	}
	return Named(w.Account.Act(func() error {
		if info, err := os.Stat(path); err != nil || !recursive || !info.IsDir() {
			return os.Chmod(path, bits)
		}
		return upwards(ctx, path, func(root *os.Root, name string, info fs.FileInfo) error {
			if info.Mode()&fs.ModeSymlink != 0 {
				return nil
			}
			return root.Chmod(name, bits)
		})
	}), path)
}

// Chown gives a file to an owner, and to the owner's group; a link itself, and with recursive all that is in a directory.
func (w Work) Chown(ctx context.Context, path string, owner *user.Account, recursive bool) error {
	uid, gid := int(owner.UID), int(owner.GID)
	return Named(w.Account.Act(func() error {
		if info, err := os.Lstat(path); err != nil || !recursive || !info.IsDir() {
			return os.Lchown(path, uid, gid)
		}
		return upwards(ctx, path, func(root *os.Root, name string, _ fs.FileInfo) error { return root.Lchown(name, uid, gid) })
	}), path)
}

type visitBelow func(root *os.Root, name string, info fs.FileInfo) error

// upwards visits a directory and all that is in it, links themselves, each before the directory that it is in: one that
// may no longer be entered keeps nothing from its change. An entry that is exchanged meanwhile leads nowhere out of it. It
// ends with the context, and refuses entries deeper than a path can name.
func upwards(ctx context.Context, path string, visit visitBelow) error {
	root, err := os.OpenRoot(path)
	if err != nil {
		return err
	}
	defer root.Close()
	return below(ctx, root, ".", path, visit)
}

// below visits one entry of a directory, and what is in it from a directory of its own: by its path from the first one,
// each would cost as many steps as it is deep.
func below(ctx context.Context, root *os.Root, name, path string, visit visitBelow) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if len(path) >= syscall.PathMax {
		return &fs.PathError{Op: "visit", Path: path[:shownMost] + "…", Err: syscall.ENAMETOOLONG}
	}
	info, err := root.Lstat(name)
	if err != nil {
		return err
	}
	if info.IsDir() {
		if err := within(ctx, root, name, path, visit); err != nil {
			return err
		}
	}
	return visit(root, name, info)
}

func within(ctx context.Context, root *os.Root, name, path string, visit visitBelow) error {
	directory, err := root.OpenRoot(name)
	if err != nil {
		return err
	}
	defer directory.Close()
	itself, err := directory.Open(".")
	if err != nil {
		return err
	}
	names, err := itself.Readdirnames(-1)
	itself.Close()
	if err != nil {
		return err
	}
	for _, each := range names {
		err := below(ctx, directory, each, filepath.Join(path, each), visit)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

// WriteMany writes the files of a tar, each as a whole. Their names are paths, which resolve makes absolute; a mode of
// 0 is none. What was written before a failure stays.
func (w Work) WriteMany(body io.Reader, resolve func(string) (string, error)) ([]File, error) {
	written := []File{}
	in := tar.NewReader(bufio.NewReaderSize(body, copyBytes))
	for {
		header, err := in.Next()
		if errors.Is(err, io.EOF) {
			return written, nil
		}
		if err != nil {
			return nil, fault.New(fault.Invalid, "read the tar: %v", err)
		}
		if header.Typeflag != tar.TypeReg || header.Name == "" || len(written) == writtenMost {
			return nil, fault.New(fault.Invalid, "the tar may have at most %d files, and nothing else", writtenMost)
		}
		path, err := resolve(header.Name)
		if err != nil {
			return nil, err
		}
		mode := NoMode
		if header.Mode != 0 {
			mode = int(header.Mode & modeBits)
		}
		file, err := w.WriteWhole(path, mode, in)
		if err != nil {
			return nil, err
		}
		written = append(written, file)
	}
}

// WriteWhole makes a file of everything in the body: a reader finds all of the old content or all of the new.
// Where the user may write the file but make none beside it, it is written in place instead.
func (w Work) WriteWhole(path string, mode int, body io.Reader) (file File, err error) {
	var beside *os.File
	err = w.Account.Act(func() error {
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		// A link stays, and its target is replaced.
		if end, err := filepath.EvalSymlinks(path); err == nil {
			path = end
		}
		info, err := os.Lstat(path)
		if err == nil && info.IsDir() {
			return fault.New(fault.IsADirectory, "path '%s' is a directory", path)
		}
		beside, err = w.createBeside(path, info, mode)
		return err
	})
	if errors.Is(err, errInPlace) || errors.Is(err, fs.ErrPermission) {
		return w.Write(path, mode, body)
	}
	if err != nil {
		return File{}, Named(err, path)
	}
	_, err = Copy(beside, body)
	if closed := beside.Close(); err == nil {
		err = closed
	}
	if failed := w.Account.Act(func() error {
		if err == nil {
			err = os.Rename(beside.Name(), path)
		}
		if err != nil {
			return errors.Join(err, os.Remove(beside.Name()))
		}
		file, err = w.stat(path)
		return err
	}); failed != nil {
		return File{}, Named(failed, path)
	}
	return file, nil
}

// errInPlace says that a file would not be the same file: it has other names, another owner, or is no ordinary file.
var errInPlace = errors.New("to be written in place")

// createBeside opens a new file in the directory of another, with its mode, or with the given one.
func (w Work) createBeside(path string, there fs.FileInfo, mode int) (*os.File, error) {
	bits := uint32(0o644)
	if there != nil {
		raw := there.Sys().(*syscall.Stat_t)
		if !there.Mode().IsRegular() || raw.Nlink > 1 || raw.Uid != w.Account.UID || raw.Gid != w.Account.GID {
			return nil, errInPlace
		}
		bits = raw.Mode & modeBits
	}
	if mode != NoMode {
		bits = uint32(mode) & modeBits
	}
	file, err := os.CreateTemp(filepath.Dir(path), ".atoll-*")
	if err != nil {
		return nil, err
	}
	if err := syscall.Fchmod(int(file.Fd()), bits); err != nil {
		file.Close()
		return nil, errors.Join(err, os.Remove(file.Name()))
	}
	return file, nil
}
