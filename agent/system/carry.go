package system

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

const (
	// carryMost bounds the bytes carried into memory, of all directories together, and carryShare their part of the guest's
	// memory: they are there at each boot, whether anybody reads them or not.
	carryMost  = 32 << 20
	carryShare = 8
	// perEntry is the cost of each entry beside the pages of its content: the guest's kernel holds about that much for it, and
	// takes up to a millisecond to copy it, while others wait for the agent.
	perEntry = 16 << 10
	page     = 4 << 10
	// nameMost is about what a file system takes for one name in a directory at the most, half of it unused.
	nameMost = 512
	atOnce   = 256
	tmpfs    = 0x01021994
)

var errTooBig = errors.New("it does not fit into memory, and a volume in it prevents a move to the disk")

// Carry brings the image's files into directories that lie in memory, which hides these files. A directory whose files no
// longer fit lies on the disk instead.
func (s *System) Carry(directories ...string) error {
	aside := s.path("/dev/.image")
	if err := os.Mkdir(aside, 0o700); err != nil {
		return err
	}
	defer os.Remove(aside)
	// Mount the root alone, without the mounts in it.
	if err := syscall.Mount(s.path("/"), aside, "", syscall.MS_BIND, ""); err != nil {
		return &os.PathError{Op: "mount the image at", Path: aside, Err: err}
	}
	defer syscall.Unmount(aside, syscall.MNT_DETACH)
	var failed error
	left := carryBound()
	for _, name := range directories {
		// An image may have a link there, which was followed when the memory was mounted.
		path, err := filepath.EvalSymlinks(s.path(name))
		if err != nil || !isInMemory(path) {
			continue
		}
		left, err = carry(filepath.Join(aside, path), path, left)
		if errors.Is(err, errTooBig) && syscall.Unmount(path, 0) == nil {
			continue
		}
		if err != nil {
			failed = errors.Join(failed, fmt.Errorf("the image's files in %s are incomplete: %w", path, err))
		}
	}
	return failed
}

func isInMemory(path string) bool {
	var info syscall.Statfs_t
	return syscall.Statfs(path, &info) == nil && info.Type == tmpfs
}

func carryBound() int64 {
	var info syscall.Sysinfo_t
	if syscall.Sysinfo(&info) != nil {
		return 0
	}
	return min(carryMost, int64(info.Totalram)*int64(info.Unit)/carryShare)
}

// carrier copies a tree, whose owners, times and hard links it keeps, into one that may have some of it.
type carrier struct {
	from, to string
	device   uint64
	left     int64
	entries  []entry
	counted  map[inode]bool
	links    map[inode]string
	times    []func() error
}

type entry struct {
	path, target string
	info         fs.FileInfo
}

type inode struct{ device, number uint64 }

func inodeOf(info fs.FileInfo) inode {
	status := info.Sys().(*syscall.Stat_t)
	return inode{status.Dev, status.Ino}
}

// carry copies nothing of what is more than most, and says how much of that it left.
func carry(from, to string, most int64) (int64, error) {
	info, err := os.Stat(to)
	if err != nil {
		return most, err
	}
	if _, err := os.Lstat(from); errors.Is(err, os.ErrNotExist) {
		return most, nil
	}
	c := &carrier{
		from: from, to: to, device: inodeOf(info).device, left: most,
		counted: map[inode]bool{}, links: map[inode]string{},
	}
	if err := c.list(); err != nil {
		return most, err
	}
	for _, each := range c.entries {
		if err = c.copy(each); err != nil {
			break
		}
	}
	for _, set := range c.times {
		err = errors.Join(err, set())
	}
	return c.left, err
}

// list finds what is to be carried, a directory before what is in it, or that it is too much.
func (c *carrier) list() error {
	for left := []string{""}; len(left) > 0; {
		last := len(left) - 1
		inside, err := c.directory(left[last])
		if err != nil {
			return err
		}
		left = append(left[:last], inside...)
	}
	return nil
}

// directory lists what is in one, and returns the directories of it. It reads a few names at a time: all may be more
// than there is memory for.
func (c *carrier) directory(name string) (inside []string, err error) {
	directory, err := os.Open(filepath.Join(c.from, name))
	if err != nil {
		return nil, err
	}
	defer directory.Close()
	// The guest's kernel reads the names of a directory at once, and takes seconds and much memory for very many.
	if info, err := directory.Stat(); err != nil || (info.Size()-page)/nameMost > c.left/perEntry {
		return nil, cmp.Or(err, errTooBig)
	}
	for {
		names, err := directory.Readdirnames(atOnce)
		if errors.Is(err, io.EOF) {
			return inside, nil
		}
		if err != nil {
			return nil, err
		}
		for _, each := range names {
			each = filepath.Join(name, each)
			path, target := filepath.Join(c.from, each), filepath.Join(c.to, each)
			info, err := os.Lstat(path)
			if err != nil {
				return nil, err
			}
			if !c.isCarried(target, info) {
				continue
			}
			if err := c.count(info); err != nil {
				return nil, err
			}
			c.entries = append(c.entries, entry{path, target, info})
			if info.IsDir() {
				inside = append(inside, each)
			}
		}
	}
}

func (c *carrier) count(info fs.FileInfo) error {
	size := int64(0)
	if info.Mode().IsRegular() && !c.counted[inodeOf(info)] {
		c.counted[inodeOf(info)] = true
		// A file with a hole may say any size, which is not to overflow.
		size = min(info.Size(), carryMost)
	}
	c.left -= perEntry + (size+page-1)/page*page
	if c.left < 0 {
		return errTooBig
	}
	return nil
}

// isCarried says no of what is there already. A volume, or what leads to one, is what it is.
func (c *carrier) isCarried(target string, info fs.FileInfo) bool {
	there, err := os.Lstat(target)
	if err != nil {
		return isKind(info.Mode())
	}
	return info.IsDir() && there.IsDir() && inodeOf(there).device == c.device
}

func (c *carrier) copy(each entry) error {
	path, target, info := each.path, each.target, each.info
	if info.IsDir() {
		if err := os.Mkdir(target, 0o700); err != nil && !errors.Is(err, os.ErrExist) {
			return err
		}
		return c.own(target, info)
	}
	if first, linked := c.links[inodeOf(info)]; linked {
		return os.Link(first, target)
	}
	if err := c.make(path, target, info); err != nil {
		return err
	}
	if info.Sys().(*syscall.Stat_t).Nlink > 1 {
		c.links[inodeOf(info)] = target
	}
	return c.own(target, info)
}

func isKind(mode fs.FileMode) bool {
	return mode.IsRegular() || mode.Type() == fs.ModeDir || mode.Type() == fs.ModeSymlink || mode.Type() == fs.ModeNamedPipe
}

func (c *carrier) make(path, target string, info fs.FileInfo) error {
	switch info.Mode().Type() {
	case 0:
		return copyFile(path, target)
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

func copyFile(path, target string) error {
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
