package files

import (
	"archive/tar"
	"bufio"
	"errors"
	"io"
	"io/fs"
	"os"
	"path"
	"strings"
	"syscall"
	"time"
	"unsafe"

	"atoll/agent/fault"
	"atoll/agent/user"
)

// unpacker makes a tar's entries below one directory. os.Root refuses every way out of it, symbolic links included.
type unpacker struct {
	root        *os.Root
	count       int
	owner       *user.Account
	mode        int
	directories []*tar.Header // their modes and times come last
}

// Unpack makes what a tar holds below a directory and returns how many entries that were. All of it belongs to the
// user, or to another owner, which takes root's rights. A mode other than NoMode is that of all that is made.
func (w Work) Unpack(directory string, body io.Reader, owner *user.Account, mode int) (count int, err error) {
	err = w.Account.Act(func() error {
		if err := makeDirectories(directory, owner); err != nil {
			return err
		}
		root, err := os.OpenRoot(directory)
		if err != nil {
			return err
		}
		defer root.Close()
		u := &unpacker{root: root, owner: owner, mode: mode}
		// A tar is read by the block, and what the connection keeps of itself is small.
		err = u.all(tar.NewReader(bufio.NewReaderSize(body, copyBytes)))
		count = u.count
		return err
	})
	if err != nil && fault.Of(err).Code == fault.Internal && !errors.As(err, new(syscall.Errno)) {
		err = fault.New(fault.Invalid, "unpack below %s: %v", directory, err)
	}
	return count, Named(err, directory)
}

// makeDirectories makes a directory and those above it; what was not there before gets the owner.
func makeDirectories(directory string, owner *user.Account) error {
	var missing []string
	for above := directory; owner != nil; above = path.Dir(above) {
		if _, err := os.Lstat(above); !errors.Is(err, fs.ErrNotExist) {
			break
		}
		missing = append(missing, above)
	}
	if err := os.MkdirAll(directory, 0o755); err != nil {
		return err
	}
	for _, made := range missing {
		if err := os.Lchown(made, int(owner.UID), int(owner.GID)); err != nil {
			return err
		}
	}
	return nil
}

// own gives what was made to the owner.
func (u *unpacker) own(name string) error {
	if u.owner == nil {
		return nil
	}
	return u.root.Lchown(name, int(u.owner.UID), int(u.owner.GID))
}

func (u *unpacker) bits(header *tar.Header) uint32 {
	if u.mode != NoMode {
		return uint32(u.mode)
	}
	return uint32(header.Mode) & modeBits
}

func (u *unpacker) all(in *tar.Reader) error {
	for {
		header, err := in.Next()
		if errors.Is(err, io.EOF) {
			return u.finish()
		}
		if err != nil {
			return fault.New(fault.Invalid, "read the tar: %v", err)
		}
		name, err := inside(header.Name)
		if err != nil {
			return err
		}
		if err := u.entry(name, header, in); err != nil {
			return err
		}
		u.count++
	}
}

// inside cleans an entry's name, and refuses one that leads out.
func inside(name string) (string, error) {
	clean := path.Clean(name)
	if name == "" || path.IsAbs(name) || clean == ".." || strings.HasPrefix(clean, "../") || strings.ContainsRune(name, 0) {
		return "", fault.New(fault.Invalid, "the tar's entry %.200q leads out of the directory", name)
	}
	return clean, nil
}

func (u *unpacker) entry(name string, header *tar.Header, in io.Reader) error {
	switch header.Typeflag {
	case tar.TypeDir:
		return u.directory(name, header)
	case tar.TypeReg:
		return u.file(name, header, in)
	case tar.TypeSymlink:
		if err := u.replace(name, func() error { return u.root.Symlink(header.Linkname, name) }); err != nil {
			return err
		}
		return u.own(name)
	case tar.TypeLink:
		target, err := inside(header.Linkname)
		if err != nil {
			return err
		}
		if target == name {
			return nil
		}
		return u.replace(name, func() error { return u.root.Link(target, name) })
	case tar.TypeXGlobalHeader:
		return nil
	}
	return fault.New(fault.Invalid, "the tar's entry %.200q is neither a file, a directory nor a link", header.Name)
}

func (u *unpacker) directory(name string, header *tar.Header) error {
	info, err := u.root.Lstat(name)
	if err == nil && !info.IsDir() {
		err = u.root.Remove(name)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := u.makeBelow(name); err != nil {
		return err
	}
	if name != "." {
		own := *header
		own.Name = name
		u.directories = append(u.directories, &own)
	}
	return nil
}

// makeBelow makes a directory below the root and those above it; what was not there before gets the owner.
func (u *unpacker) makeBelow(name string) error {
	var missing []string
	for above := name; u.owner != nil && above != "."; above = path.Dir(above) {
		if _, err := u.root.Lstat(above); !errors.Is(err, fs.ErrNotExist) {
			break
		}
		missing = append(missing, above)
	}
	if err := u.root.MkdirAll(name, 0o755); err != nil {
		return err
	}
	for _, made := range missing {
		if err := u.own(made); err != nil {
			return err
		}
	}
	return nil
}

func (u *unpacker) file(name string, header *tar.Header, in io.Reader) error {
	var file *os.File
	err := u.replace(name, func() (err error) {
		file, err = u.root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
		return err
	})
	if err != nil {
		return err
	}
	_, err = Copy(file, in)
	if err == nil && u.owner != nil {
		err = file.Chown(int(u.owner.UID), int(u.owner.GID))
	}
	if err == nil {
		err = syscall.Fchmod(int(file.Fd()), u.bits(header))
	}
	if err == nil && !header.ModTime.Before(time.Unix(0, 0)) {
		err = setTimes(file, header.ModTime)
	}
	if closed := file.Close(); err == nil {
		err = closed
	}
	return err
}

// setTimes does what os.Chtimes does, without walking to the file again.
func setTimes(file *os.File, at time.Time) error {
	moment := syscall.NsecToTimespec(at.UnixNano())
	times := [2]syscall.Timespec{moment, moment}
	_, _, errno := syscall.Syscall6(syscall.SYS_UTIMENSAT, file.Fd(), 0, uintptr(unsafe.Pointer(&times)), 0, 0, 0)
	if errno != 0 {
		return errno
	}
	return nil
}

// replace makes something. Most often nothing is in the way and the directory is there, so these are looked at only
// when it fails: each look is a walk from the root down.
func (u *unpacker) replace(name string, create func() error) error {
	err := create()
	if errors.Is(err, fs.ErrNotExist) {
		if err := u.makeBelow(path.Dir(name)); err != nil {
			return err
		}
		err = create()
	}
	if errors.Is(err, fs.ErrExist) {
		if err := u.root.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		err = create()
	}
	return err
}

func (u *unpacker) times(name string, header *tar.Header) error {
	if header.ModTime.Before(time.Unix(0, 0)) {
		return nil
	}
	return u.root.Chtimes(name, header.ModTime, header.ModTime)
}

// finish sets the modes and times of directories, the deepest first, when nothing is made in them any more.
func (u *unpacker) finish() error {
	for i := len(u.directories) - 1; i >= 0; i-- {
		header := u.directories[i]
		err := u.times(header.Name, header)
		if errors.Is(err, fs.ErrPermission) {
			// It was there before and is somebody else's.
			continue
		}
		if err != nil {
			return err
		}
		directory, err := u.root.OpenFile(header.Name, os.O_RDONLY|syscall.O_NOFOLLOW, 0)
		if err != nil {
			return err
		}
		err = syscall.Fchmod(int(directory.Fd()), u.bits(header))
		directory.Close()
		if err != nil {
			return err
		}
	}
	return nil
}
