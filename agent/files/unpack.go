package files

import (
	"archive/tar"
	"bufio"
	"errors"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
	"syscall"
	"time"
	"unsafe"

	"atoll/agent/fault"
	"atoll/agent/user"
)

// unpacker makes a tar's entries below one directory. os.Root refuses the ways out of it; see levels for links.
type unpacker struct {
	at          *levels // where the entry goes
	from        *levels // where a hard link's first name is
	count       int
	owner       *user.Account
	keepsOwners bool
	mode        int
	made        map[inode]bool // links and directories that were not there before
	directories []*tar.Header  // of those made: their modes and times come last
}

// Look has the owner and mode that files of a tar get instead of their own.
type Look struct {
	// Owner takes root's rights; nil is the user.
	Owner *user.Account
	// KeepsOwners: the numbers in the tar are the owners. It takes root's rights too.
	KeepsOwners bool
	// Mode is the mode of everything that is made, unless it is NoMode.
	Mode int
}

// Unpack makes the entries of a tar below a directory, and returns their number.
//
// Directories that are there stay as they are. A link to one stays, and the tar's entries in that directory go through it.
// Other files and links are replaced; a name that is a directory on one side only is refused.
func (w Work) Unpack(directory string, body io.Reader, look Look) (count int, err error) {
	err = w.Account.Act(func() error {
		if err := makeDirectories(directory, look.Owner); err != nil {
			return err
		}
		u := &unpacker{owner: look.Owner, keepsOwners: look.KeepsOwners, mode: look.Mode, made: map[inode]bool{}}
		for _, each := range []**levels{&u.at, &u.from} {
			opened, err := openLevels(directory, w.Account, look.Owner, u.made)
			if err != nil {
				return err
			}
			defer opened.leave(0)
			*each = opened
		}
		// A tar is read by the block, and what the connection keeps of itself is small.
		err := u.all(tar.NewReader(bufio.NewReaderSize(body, copyBytes)))
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

// ids are the owner and group of an entry, unless they are those of whoever acts.
func (u *unpacker) ids(header *tar.Header) (uid, gid int, given bool) {
	if u.owner != nil {
		return int(u.owner.UID), int(u.owner.GID), true
	}
	return header.Uid, header.Gid, u.keepsOwners
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
	case tar.TypeXGlobalHeader:
		if told, cut := header.PAXRecords[FaultRecord]; cut {
			return fault.New(fault.Invalid, "whoever made the archive could not go on: %.1000s", told)
		}
		return nil
	case tar.TypeDir:
		return u.directory(name, header)
	case tar.TypeReg, tar.TypeSymlink, tar.TypeLink:
	default:
		return fault.New(fault.Invalid, "the tar's entry %.200q is neither a file, a directory nor a link", header.Name)
	}
	if err := u.at.enter(path.Dir(name)); err != nil {
		return err
	}
	base := path.Base(name)
	switch header.Typeflag {
	case tar.TypeSymlink:
		return u.symlink(base, header)
	case tar.TypeLink:
		return u.hardlink(name, header.Linkname)
	}
	return u.file(base, header, in)
}

func (u *unpacker) directory(name string, header *tar.Header) error {
	if err := u.at.enter(name); err != nil {
		return err
	}
	info, err := u.at.here().Stat(".")
	if err == nil && u.made[inodeOf(info)] {
		own := *header
		own.Name = name
		u.directories = append(u.directories, &own)
	}
	return err
}

func (u *unpacker) symlink(base string, header *tar.Header) error {
	in := u.at.here()
	if err := u.replace(base, func() error { return in.Symlink(header.Linkname, base) }); err != nil {
		return err
	}
	info, err := in.Lstat(base)
	if err != nil {
		return err
	}
	u.made[inodeOf(info)] = true
	if uid, gid, given := u.ids(header); given {
		return in.Lchown(base, uid, gid)
	}
	return nil
}

func (u *unpacker) hardlink(name, to string) error {
	target, err := inside(to)
	if err != nil || target == name {
		return err
	}
	if err := u.from.enter(path.Dir(target)); err != nil {
		return err
	}
	base := path.Base(name)
	return u.replace(base, func() error { return u.at.link(u.from, path.Base(target), base) })
}

func (u *unpacker) file(name string, header *tar.Header, in io.Reader) error {
	var file *os.File
	err := u.replace(name, func() (err error) {
		file, err = u.at.here().OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
		return err
	})
	if err != nil {
		return err
	}
	_, err = Copy(file, in)
	if uid, gid, given := u.ids(header); err == nil && given {
		err = file.Chown(uid, gid)
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

// linkAt does what os.Link does, between open directories.
func linkAt(from *os.File, name string, in *os.File, as string) error {
	old, err := syscall.BytePtrFromString(name)
	if err != nil {
		return err
	}
	made, err := syscall.BytePtrFromString(as)
	if err != nil {
		return err
	}
	_, _, errno := syscall.Syscall6(syscall.SYS_LINKAT,
		from.Fd(), uintptr(unsafe.Pointer(old)), in.Fd(), uintptr(unsafe.Pointer(made)), 0, 0)
	if errno != 0 {
		return errno
	}
	return nil
}

// replace makes something in the place of what is there, unless that is a directory. Most often nothing is, so it is
// looked at only when it fails.
func (u *unpacker) replace(name string, create func() error) error {
	err := create()
	if !errors.Is(err, fs.ErrExist) {
		return err
	}
	in := u.at.here()
	if info, err := in.Lstat(name); err == nil && info.IsDir() {
		return fault.New(fault.IsADirectory, "%s is a directory, and the archive has something else of that name", u.at.path(name))
	}
	if err := in.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return create()
}

// finish sets the modes and times of directories, the deepest first, when nothing is made in them any more.
func (u *unpacker) finish() error {
	slices.SortFunc(u.directories, func(a, b *tar.Header) int { return strings.Compare(b.Name, a.Name) })
	for _, header := range u.directories {
		if err := u.at.enter(header.Name); err != nil {
			return err
		}
		in := u.at.here()
		if !header.ModTime.Before(time.Unix(0, 0)) {
			if err := in.Chtimes(".", header.ModTime, header.ModTime); err != nil {
				return err
			}
		}
		directory, err := in.Open(".")
		if err != nil {
			return err
		}
		if uid, gid, given := u.ids(header); given {
			err = directory.Chown(uid, gid)
		}
		if err == nil {
			err = syscall.Fchmod(int(directory.Fd()), u.bits(header))
		}
		directory.Close()
		if err != nil {
			return err
		}
	}
	return nil
}
