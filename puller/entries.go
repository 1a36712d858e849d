package main

import (
	"archive/tar"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const (
	whiteoutPrefix = ".wh."
	whiteoutOpaque = ".wh..wh..opq"
	whiteoutMeta   = ".wh..wh."
	markOpaque     = "overlay.opaque"
	// Of a directory that the layer only has for what is in it: whose and how it is, layers below say.
	markImplied = "overlay.atoll.implied"
	// Of a layer's root: some directory in it may be so marked.
	markImplies   = "overlay.atoll.implies"
	attributeKey  = "SCHILY.xattr."
	attributeMost = 64 << 10
)

func (t *tree) file(name string, header *tar.Header, content io.Reader) error {
	// A sparse file is written with its holes, which take next to nothing in the archive.
	if header.Size > t.mostBytes-t.bytes {
		return newFault("too_big", "it has more than the %d bytes that an image may have", t.mostBytes)
	}
	t.bytes += header.Size
	file, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL|syscall.O_NOFOLLOW, 0o600)
	if err != nil {
		return err
	}
	defer file.Close()
	if _, err := io.CopyBuffer(struct{ io.Writer }{file}, struct{ io.Reader }{content}, t.buffer); err != nil {
		return err
	}
	if err := file.Chown(header.Uid, header.Gid); err != nil {
		return err
	}
	if err := setAttributes(name, header); err != nil {
		return err
	}
	// After the owner, whose change takes setuid away.
	if err := syscall.Fchmod(int(file.Fd()), modeOf(header)); err != nil {
		return err
	}
	if err := file.Close(); err != nil {
		return err
	}
	return setTime(name, header.ModTime)
}

func (t *tree) symlink(name string, header *tar.Header) error {
	if header.Linkname == "" || len(header.Linkname) >= nameMost {
		return invalid(header.Name, "links to an invalid file name")
	}
	if err := os.Symlink(header.Linkname, name); err != nil {
		return err
	}
	if err := os.Lchown(name, header.Uid, header.Gid); err != nil {
		return err
	}
	return setTime(name, header.ModTime)
}

func (t *tree) hardLink(name string, header *tar.Header) error {
	target, err := inside(header.Linkname)
	if err != nil {
		return err
	}
	info, err := os.Lstat(target)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return invalid(header.Name, "is a hard link to %.200q, which its layer does not have", target)
	case err != nil:
		return err
	case info.IsDir() || isWhiteout(info):
		return invalid(header.Name, "is a hard link to %.200q, which is not a file", target)
	}
	return os.Link(target, name)
}

func (t *tree) fifo(name string, header *tar.Header) error {
	if err := syscall.Mkfifo(name, 0o600); err != nil {
		return err
	}
	if err := os.Lchown(name, header.Uid, header.Gid); err != nil {
		return err
	}
	if err := syscall.Chmod(name, modeOf(header)); err != nil {
		return err
	}
	return setTime(name, header.ModTime)
}

// whiteout hides entries of lower layers. This layer's own entry of the same name stays, in any order of the two.
func (t *tree) whiteout(directory, base string) error {
	if base == whiteoutOpaque {
		return t.makeOpaque(directory)
	}
	hidden := strings.TrimPrefix(base, whiteoutPrefix)
	if strings.HasPrefix(base, whiteoutMeta) {
		return nil
	}
	if hidden == "" || hidden == "." || hidden == ".." {
		return invalid(base, "hides an invalid name")
	}
	name := path.Join(directory, hidden)
	if t.merges() {
		return t.removeLower(name)
	}
	info, err := os.Lstat(name)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return syscall.Mknod(name, syscall.S_IFCHR, 0)
	case err == nil && info.IsDir():
		// Another one than that below, of which nothing is left.
		return errors.Join(t.makeOpaque(name), t.unmark(name, markImplied))
	}
	return err
}

func (t *tree) makeOpaque(directory string) error {
	if t.merges() {
		return t.removeLower(directory)
	}
	return t.mark(directory, markOpaque)
}

// mark sets an attribute that the kernel's overlay reads, or at least shows to nobody.
func (t *tree) mark(directory, mark string) error {
	if t.merges() {
		return nil
	}
	return unix.Lsetxattr(directory, t.overlay+mark, []byte("y"), 0)
}

func (t *tree) unmark(directory, mark string) error {
	if t.merges() {
		return nil
	}
	err := unix.Lremovexattr(directory, t.overlay+mark)
	if errors.Is(err, unix.ENODATA) {
		return nil
	}
	return err
}

// opaqueInsteadOf makes a directory in the place of a whiteout: it hides what the whiteout hid.
func (t *tree) opaqueInsteadOf(name string) error {
	if err := os.Remove(name); err != nil {
		return err
	}
	if err := os.Mkdir(name, 0o755); err != nil {
		return err
	}
	return t.makeOpaque(name)
}

func isWhiteout(info fs.FileInfo) bool {
	status, ok := info.Sys().(*syscall.Stat_t)
	return ok && status.Mode&syscall.S_IFMT == syscall.S_IFCHR && status.Rdev == 0
}

// setAttributes sets a file's extended attributes, but for those by which the kernel or another program rules a host.
func setAttributes(name string, header *tar.Header) error {
	for key, value := range header.PAXRecords {
		attribute, found := strings.CutPrefix(key, attributeKey)
		if !found || !isOwnAttribute(attribute) {
			continue
		}
		if len(value) > attributeMost {
			return invalid(header.Name, "has an attribute of %d bytes", len(value))
		}
		err := unix.Lsetxattr(name, attribute, []byte(value), 0)
		if refusesAttribute(err) {
			return invalid(header.Name, "has the attribute %.100q of %d bytes, which the file system here cannot hold: %v",
				attribute, len(value), err)
		}
		if err != nil && !errors.Is(err, unix.EOPNOTSUPP) {
			return fmt.Errorf("set the attribute %s of %s: %w", attribute, name, err)
		}
	}
	return nil
}

// refusesAttribute tells whether it is for what an attribute is that it was not set. File systems call it a full disk
// when a file's attributes have no room.
func refusesAttribute(err error) bool {
	if errors.Is(err, unix.ENOSPC) {
		var disk unix.Statfs_t
		return unix.Statfs(".", &disk) == nil && disk.Bavail*uint64(disk.Bsize) > attributeMost
	}
	return errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ERANGE) || errors.Is(err, unix.E2BIG)
}

func isOwnAttribute(name string) bool {
	return strings.HasPrefix(name, "user.") && !strings.HasPrefix(name, "user.overlay.") || name == "security.capability"
}

func setTime(name string, at time.Time) error {
	stamp := unix.Timespec{Sec: at.Unix(), Nsec: int64(at.Nanosecond())}
	return unix.UtimesNanoAt(unix.AT_FDCWD, name, []unix.Timespec{stamp, stamp}, unix.AT_SYMLINK_NOFOLLOW)
}

func mapText(users, groups []idRange) string {
	most := func(ranges []idRange) uint64 {
		var most uint64
		for _, each := range ranges {
			most = max(most, each.first+each.count-1)
		}
		return most
	}
	return fmt.Sprintf("0 to %d (users) and 0 to %d (groups)", most(users), most(groups))
}
