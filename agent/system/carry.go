package system

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

const (
	// carryMost is what may be carried into memory, of each directory.
	carryMost = 32 << 20
	tmpfs     = 0x01021994
)

var errTooBig = errors.New("it is too big to lie in memory, and a volume in it keeps it there")

// Carry brings what the image has in directories that lie in memory, which hides it, into them. A directory in which it
// has too much for that lies on the disk instead.
func (s *System) Carry(directories ...string) error {
	aside := s.path("/dev/.image")
	if err := os.Mkdir(aside, 0o700); err != nil {
		return err
	}
	defer os.Remove(aside)
	// Of the root alone: without what is mounted in it.
	if err := syscall.Mount(s.path("/"), aside, "", syscall.MS_BIND, ""); err != nil {
		return &os.PathError{Op: "mount the image at", Path: aside, Err: err}
	}
	defer syscall.Unmount(aside, syscall.MNT_DETACH)
	var failed error
	for _, name := range directories {
		// An image may have a link there, which was followed when the memory was mounted.
		path, err := filepath.EvalSymlinks(s.path(name))
		if err != nil || !isInMemory(path) {
			continue
		}
		err = carry(filepath.Join(aside, path), path, carryMost)
		if errors.Is(err, errTooBig) && syscall.Unmount(path, 0) == nil {
			continue
		}
		if err != nil {
			failed = errors.Join(failed, fmt.Errorf("what the image has in %s is not all there: %w", path, err))
		}
	}
	return failed
}

func isInMemory(path string) bool {
	var info syscall.Statfs_t
	return syscall.Statfs(path, &info) == nil && info.Type == tmpfs
}

// carrier copies a tree, whose owners and times it keeps, into one that may have some of it.
type carrier struct {
	from, to string
	device   uint64
	left     int64
	times    []func() error
}

func carry(from, to string, most int64) error {
	info, err := os.Stat(to)
	if err != nil {
		return err
	}
	c := &carrier{from: from, to: to, device: info.Sys().(*syscall.Stat_t).Dev, left: most}
	err = filepath.WalkDir(from, func(path string, _ fs.DirEntry, err error) error {
		if err != nil || path == from {
			return err
		}
		return c.entry(path)
	})
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	for _, set := range c.times {
		err = errors.Join(err, set())
	}
	return err
}

func (c *carrier) entry(path string) error {
	name, err := filepath.Rel(c.from, path)
	if err != nil {
		return err
	}
	target := filepath.Join(c.to, name)
	info, err := os.Lstat(path)
	if err != nil {
		return err
	}
	if !isCarried(info.Mode()) {
		return nil
	}
	if there, err := os.Lstat(target); err == nil {
		// A volume, or what leads to one, is what it is.
		if info.IsDir() && !(there.IsDir() && there.Sys().(*syscall.Stat_t).Dev == c.device) {
			return filepath.SkipDir
		}
		if !info.IsDir() {
			return nil
		}
	} else if err := c.make(path, target, info); err != nil {
		return err
	}
	return c.own(target, info)
}

func isCarried(mode fs.FileMode) bool {
	return mode.IsRegular() || mode.Type() == fs.ModeDir || mode.Type() == fs.ModeSymlink || mode.Type() == fs.ModeNamedPipe
}

func (c *carrier) make(path, target string, info fs.FileInfo) error {
	switch info.Mode().Type() {
	case 0:
		return c.file(path, target, info.Size())
	case fs.ModeDir:
		return os.Mkdir(target, 0o700)
	case fs.ModeSymlink:
		link, err := os.Readlink(path)
		if err != nil {
			return err
		}
		return os.Symlink(link, target)
	case fs.ModeNamedPipe:
		return syscall.Mkfifo(target, 0o600)
	}
	return nil
}

func (c *carrier) file(path, target string, size int64) error {
	if c.left -= size; c.left < 0 {
		return errTooBig
	}
	from, err := os.Open(path)
	if err != nil {
		return err
	}
	defer from.Close()
	to, err := os.OpenFile(target, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(to, from)
	return errors.Join(err, to.Close())
}

func (c *carrier) own(target string, info fs.FileInfo) error {
	status := info.Sys().(*syscall.Stat_t)
	if err := os.Lchown(target, int(status.Uid), int(status.Gid)); err != nil {
		return err
	}
	if info.Mode()&fs.ModeSymlink != 0 {
		return nil
	}
	if err := syscall.Chmod(target, status.Mode&0o7777); err != nil {
		return err
	}
	if info.IsDir() {
		// What comes into it would change it again.
		c.times = append(c.times, func() error { return os.Chtimes(target, info.ModTime(), info.ModTime()) })
		return nil
	}
	return os.Chtimes(target, info.ModTime(), info.ModTime())
}
