package files

import (
	"errors"
	"io/fs"
	"os"
	"strings"
	"syscall"
	"unsafe"
)

const (
	oPath     = 0x200000
	linksMost = 40
	// Of a link, which may be as long as a path.
	targetMost = 4096
)

// gives tells whether the agent may make a file that the user was refused.
func (w Work) gives(refused error) bool {
	return w.Gives && !w.Account.IsAgent() && os.Geteuid() == 0 && errors.Is(refused, fs.ErrPermission)
}

// createGiven opens a file for its new content with the agent's rights, and gives it to the user with the directories
// that had to be made.
func (w Work) createGiven(path string) (*os.File, error) {
	way, err := newWay(path)
	if err != nil {
		return nil, err
	}
	defer way.close()
	fd, made, err := way.file()
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: path, Err: err}
	}
	file := os.NewFile(uintptr(fd), path)
	if made {
		// As in create.
		err = syscall.Fchmod(fd, 0o644)
	}
	if err == nil {
		err = syscall.Fchown(fd, int(w.Account.UID), int(w.Account.GID))
	}
	if err == nil {
		err = way.give(w)
	}
	if err != nil {
		file.Close()
		return nil, err
	}
	return file, nil
}

// makeDirectoryGiven makes a directory, with those above it, with the agent's rights and gives them to the user.
func (w Work) makeDirectoryGiven(path string) (file File, err error) {
	way, err := newWay(path)
	if err != nil {
		return file, err
	}
	defer way.close()
	for len(way.left) > 0 {
		if err := way.step(); err != nil {
			return file, &fs.PathError{Op: "mkdir", Path: path, Err: err}
		}
	}
	if err := way.give(w); err != nil {
		return file, err
	}
	return w.stat(path)
}

// way goes along a path by open directories, so that nothing is exchanged under it.
//
// It works with the agent's rights for a user who has fewer. So it follows only root's own links: others would lead
// it to files that it must not touch.
type way struct {
	at    int // the open directory that it has come to
	left  []string
	made  []int // directories, which are given away at the end: until then nobody else can change what is in them
	links int
}

func newWay(path string) (*way, error) {
	root, err := openAt(-1, "/", syscall.O_RDONLY|syscall.O_DIRECTORY, 0)
	return &way{at: root, left: elements(path)}, err
}

func elements(path string) []string {
	return strings.FieldsFunc(path, func(char rune) bool { return char == '/' })
}

func (w *way) close() {
	for _, fd := range w.made {
		syscall.Close(fd)
	}
	syscall.Close(w.at)
}

// give gives to the user what was made.
func (w *way) give(to Work) error {
	for _, fd := range w.made {
		if err := syscall.Fchown(fd, int(to.Account.UID), int(to.Account.GID)); err != nil {
			return err
		}
	}
	return nil
}

// step goes into the next directory, which it makes if it is missing, or along a link.
func (w *way) step() error {
	const flags = syscall.O_RDONLY | syscall.O_DIRECTORY | syscall.O_NOFOLLOW
	name := w.left[0]
	next, err := openAt(w.at, name, flags, 0)
	if errors.Is(err, syscall.ENOENT) {
		if err := syscall.Mkdirat(w.at, name, 0o755); err != nil {
			return err
		}
		if next, err = openAt(w.at, name, flags, 0); err != nil {
			return err
		}
		kept, err := syscall.Dup(next)
		if err != nil {
			syscall.Close(next)
			return err
		}
		syscall.CloseOnExec(kept)
		w.made = append(w.made, kept)
	}
	if errors.Is(err, syscall.ENOTDIR) || errors.Is(err, syscall.ELOOP) {
		return w.follow(syscall.ENOTDIR)
	}
	if err != nil {
		return err
	}
	w.left = w.left[1:]
	w.come(next)
	return nil
}

func (w *way) come(next int) {
	syscall.Close(w.at)
	w.at = next
}

// follow replaces the next element by what it leads to, if it is a link of root.
func (w *way) follow(otherwise error) error {
	link, err := openAt(w.at, w.left[0], oPath|syscall.O_NOFOLLOW, 0)
	if err != nil {
		return err
	}
	defer syscall.Close(link)
	var info syscall.Stat_t
	if err := syscall.Fstat(link, &info); err != nil {
		return err
	}
	switch {
	case info.Mode&syscall.S_IFMT != syscall.S_IFLNK:
		return otherwise
	case info.Uid != 0:
		return syscall.EACCES
	case w.links == linksMost:
		return syscall.ELOOP
	}
	w.links++
	target, err := targetOf(link)
	if err != nil {
		return err
	}
	if strings.HasPrefix(target, "/") {
		root, err := openAt(-1, "/", syscall.O_RDONLY|syscall.O_DIRECTORY, 0)
		if err != nil {
			return err
		}
		w.come(root)
	}
	w.left = append(elements(target), w.left[1:]...)
	return nil
}

// file opens the file at the way's end, and tells whether it was made.
func (w *way) file() (fd int, made bool, err error) {
	for {
		for len(w.left) > 1 {
			if err := w.step(); err != nil {
				return -1, false, err
			}
		}
		if len(w.left) == 0 {
			return -1, false, syscall.EISDIR
		}
		const flags = syscall.O_WRONLY | syscall.O_NOFOLLOW | syscall.O_NONBLOCK
		fd, err = openAt(w.at, w.left[0], flags|syscall.O_CREAT|syscall.O_EXCL, 0o644)
		if err == nil {
			return fd, true, nil
		}
		if !errors.Is(err, syscall.EEXIST) {
			return -1, false, err
		}
		fd, err = openAt(w.at, w.left[0], flags, 0)
		if err == nil {
			err = emptied(fd)
			return fd, false, err
		}
		if !errors.Is(err, syscall.ELOOP) {
			return -1, false, err
		}
		if err := w.follow(syscall.EACCES); err != nil {
			return -1, false, err
		}
	}
}

// emptied empties a file that has one name only: by another one it may be one that is not meant. If it fails, it closes
// the file.
func emptied(fd int) error {
	var info syscall.Stat_t
	err := syscall.Fstat(fd, &info)
	if err == nil && (info.Mode&syscall.S_IFMT != syscall.S_IFREG || info.Nlink != 1) {
		err = syscall.EACCES
	}
	if err == nil {
		err = syscall.Ftruncate(fd, 0)
	}
	if err != nil {
		syscall.Close(fd)
	}
	return err
}

func openAt(directory int, name string, flags int, mode uint32) (int, error) {
	for {
		fd, err := syscall.Openat(directory, name, flags|syscall.O_CLOEXEC, mode)
		if !errors.Is(err, syscall.EINTR) {
			return fd, err
		}
	}
}

// targetOf reads an open link.
func targetOf(link int) (string, error) {
	target := make([]byte, targetMost)
	empty := [1]byte{}
	size, _, errno := syscall.Syscall6(syscall.SYS_READLINKAT, uintptr(link), uintptr(unsafe.Pointer(&empty[0])),
		uintptr(unsafe.Pointer(&target[0])), uintptr(len(target)), 0, 0)
	if errno != 0 {
		return "", errno
	}
	return string(target[:size]), nil
}
