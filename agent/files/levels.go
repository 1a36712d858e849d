package files

import (
	"errors"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
	"syscall"

	"atoll/agent/fault"
	"atoll/agent/user"
)

// pathMost is how long a path may be, to the kernel too.
const pathMost = 4096

type level struct {
	part string
	root *os.Root
}

// levels is the way from one directory down to another, each part of it open. A link that was there before and leads to
// a directory is a part like any other; nothing else leads out.
type levels struct {
	top     string // the path of the first directory
	account *user.Account
	owner   *user.Account // of what is made; nil is whoever acts
	made    map[inode]bool
	way     []level
}

// openLevels begins at a directory. What is made on the way, links and directories, is to be in made.
func openLevels(top string, account, owner *user.Account, made map[inode]bool) (*levels, error) {
	root, err := os.OpenRoot(top)
	if err != nil {
		return nil, err
	}
	return &levels{top: top, account: account, owner: owner, made: made, way: []level{{root: root}}}, nil
}

// here is the directory that was entered last.
func (l *levels) here() *os.Root { return l.way[len(l.way)-1].root }

// path is that of a file in the directory that was entered last.
func (l *levels) path(name string) string {
	parts := []string{l.top}
	for _, each := range l.way[1:] {
		parts = append(parts, each.part)
	}
	return path.Join(append(parts, name)...)
}

// enter goes to a directory below the first one, which is made if it is missing.
func (l *levels) enter(name string) error {
	if len(name) > pathMost {
		return fault.New(fault.Invalid, "the path %.200q… is too long", name)
	}
	parts := []string{}
	if name != "." {
		parts = strings.Split(name, "/")
	}
	same := 0
	for same < min(len(parts), len(l.way)-1) && parts[same] == l.way[same+1].part {
		same++
	}
	l.leave(same + 1)
	for _, part := range parts[same:] {
		if err := l.descend(part); err != nil {
			return err
		}
	}
	return nil
}

func (l *levels) descend(part string) error {
	in := l.here()
	info, err := in.Lstat(part)
	if errors.Is(err, fs.ErrNotExist) {
		info, err = l.make(in, part)
	}
	if err != nil {
		return err
	}
	var root *os.Root
	switch {
	case info.IsDir():
		root, err = in.OpenRoot(part)
	case info.Mode()&fs.ModeSymlink != 0:
		root, err = l.through(part, info)
	default:
		err = fault.New(fault.NotADirectory, "%s is in the way: it is not a directory", l.path(part))
	}
	if err != nil {
		return err
	}
	l.way = append(l.way, level{part, root})
	return nil
}

func (l *levels) make(in *os.Root, part string) (fs.FileInfo, error) {
	if err := in.Mkdir(part, 0o755); err != nil {
		return nil, err
	}
	if l.owner != nil {
		if err := in.Lchown(part, int(l.owner.UID), int(l.owner.GID)); err != nil {
			return nil, err
		}
	}
	info, err := in.Lstat(part)
	if err == nil {
		l.made[inodeOf(info)] = true
	}
	return info, err
}

// through opens the directory that a link leads to. It follows neither a link that somebody else planted, with the rights
// of the acting account, nor a link from the archive itself.
func (l *levels) through(part string, link fs.FileInfo) (*os.Root, error) {
	where, owner := l.path(part), link.Sys().(*syscall.Stat_t).Uid
	if l.made[inodeOf(link)] {
		return nil, fault.New(fault.Invalid, "%s is a link of the archive itself, which nothing goes through", where)
	}
	if owner != 0 && owner != l.account.UID {
		return nil, fault.New(fault.Denied, "%s is in the way: it is a link that belongs to user %d", where, owner)
	}
	info, err := os.Stat(where)
	if err == nil && !info.IsDir() {
		err = syscall.ENOTDIR
	}
	if err != nil {
		return nil, fault.New(fault.NotADirectory, "%s is in the way: it is a link, and does not lead to a directory", where)
	}
	return os.OpenRoot(where)
}

// leave closes all but the first of the directories.
func (l *levels) leave(keep int) {
	for _, each := range l.way[keep:] {
		each.root.Close()
	}
	l.way = slices.Delete(l.way, keep, len(l.way))
}

// link gives a file another name, wherever the two directories are.
func (l *levels) link(from *levels, target, name string) error {
	source, err := from.here().Open(".")
	if err != nil {
		return err
	}
	defer source.Close()
	in, err := l.here().Open(".")
	if err != nil {
		return err
	}
	defer in.Close()
	if err := linkAt(source, target, in, name); err != nil {
		return &fs.PathError{Op: "link", Path: l.path(name), Err: err}
	}
	return nil
}
