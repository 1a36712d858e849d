package main

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// seamRequest names layers, the top one first, in a directory, and an empty directory, both by their descriptors.
type seamRequest struct {
	LayersFD      int      `json:"layers_fd"`
	Layers        []string `json:"layers"`
	DirectoryFD   int      `json:"directory_fd"`
	OverlayPrefix string   `json:"overlay_prefix"`
}

type seamed struct {
	// How many directories it has; each stands for one that was counted when its layer was unpacked.
	Directories int `json:"directories"`
}

// makeSeam makes the layer that lies on top of others and says again whose directories are that the kernel would show
// as of a layer that only has them for what is in them.
func makeSeam(request *seamRequest) (any, error) {
	s := &seam{overlay: request.OverlayPrefix}
	var all []int
	for index, name := range request.Layers {
		layer, err := openDirectory(request.LayersFD, name)
		if err != nil {
			return nil, newFault("failed", "open the layer %s: %v", name, err)
		}
		s.layers, all = append(s.layers, layer), append(all, index)
	}
	if err := unix.Close(request.LayersFD); err != nil {
		return nil, err
	}
	var err error
	if s.own, err = openDirectory(request.DirectoryFD, "."); err != nil {
		return nil, err
	}
	if err := lockInto(request.DirectoryFD); err != nil {
		return nil, err
	}
	if err := s.visit(all); err != nil {
		return nil, fmt.Errorf("restore the owner of its directory %.200q: %w", strings.Join(s.path, "/"), err)
	}
	return &seamed{Directories: s.count}, nil
}

// seam is in one directory at a time, in all layers at once. Whatever the depth, it holds one descriptor for each.
type seam struct {
	overlay string
	layers  []*os.File // where it is in each, the top one first
	path    []string   // how it came here
	own     *os.File   // the deepest directory on this path that the seam has
	depth   int        // of own
	count   int
}

// visit says again what is to be said of this directory and of those in it. The stack is of the layers that have it.
func (s *seam) visit(stack []int) error {
	said, err := s.saidBy(stack)
	if err != nil {
		return err
	}
	if said != stack[0] {
		differs, err := differ(s.layers[said], s.layers[stack[0]])
		if err != nil {
			return err
		}
		if differs {
			if err := s.reach(); err != nil {
				return err
			}
		}
	}
	children, err := s.children(stack)
	if err != nil {
		return err
	}
	for name, inside := range children {
		if err := s.child(name, inside); err != nil {
			return err
		}
	}
	if s.depth < len(s.path) {
		return nil
	}
	// Last, as what came into it has changed its time.
	return copyFacts(s.layers[said], s.own)
}

func (s *seam) child(name string, stack []int) error {
	for _, index := range stack {
		if err := move(&s.layers[index], name); err != nil {
			return err
		}
	}
	s.path = append(s.path, name)
	if err := s.visit(stack); err != nil {
		return err
	}
	if s.depth == len(s.path) {
		if err := move(&s.own, ".."); err != nil {
			return err
		}
		s.depth--
	}
	s.path = s.path[:len(s.path)-1]
	for _, index := range stack {
		if err := move(&s.layers[index], ".."); err != nil {
			return err
		}
	}
	return nil
}

// saidBy is the topmost layer that has this directory itself; the top one, if none has.
func (s *seam) saidBy(stack []int) (int, error) {
	for _, index := range stack {
		if implied, err := s.has(index, markImplied); err != nil || !implied {
			return index, err
		}
	}
	return stack[0], nil
}

// children are the directories in this one of which the kernel makes one of several, with the layers that have them.
func (s *seam) children(stack []int) (map[string][]int, error) {
	for position, index := range stack {
		opaque, err := s.has(index, markOpaque)
		if err != nil {
			return nil, err
		}
		if opaque {
			stack = stack[:position+1]
			break
		}
	}
	if len(stack) < 2 {
		return nil, nil
	}
	found := map[string][]int{}
	for _, index := range slices.Backward(stack) {
		if err := s.addChildren(index, found); err != nil {
			return nil, err
		}
	}
	maps.DeleteFunc(found, func(_ string, layers []int) bool { return len(layers) < 2 })
	for _, layers := range found {
		slices.Reverse(layers)
	}
	return found, nil
}

// addChildren adds to what layers below have what this one has.
func (s *seam) addChildren(index int, found map[string][]int) error {
	for {
		entries, err := s.layers[index].ReadDir(1024)
		for _, entry := range entries {
			if entry.IsDir() {
				found[entry.Name()] = append(found[entry.Name()], index)
			} else {
				// A whiteout or a file: what is below it is not seen.
				delete(found, entry.Name())
			}
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// reach makes this directory, and those above it, in the seam.
func (s *seam) reach() error {
	for ; s.depth < len(s.path); s.depth++ {
		name := s.path[s.depth]
		if err := unix.Mkdirat(int(s.own.Fd()), name, 0o700); err != nil {
			return err
		}
		if err := move(&s.own, name); err != nil {
			return err
		}
		s.count++
	}
	return nil
}

func (s *seam) has(index int, mark string) (bool, error) {
	_, err := unix.Fgetxattr(int(s.layers[index].Fd()), s.overlay+mark, nil)
	if errors.Is(err, unix.ENODATA) || errors.Is(err, unix.EOPNOTSUPP) {
		return false, nil
	}
	return err == nil, err
}

func openDirectory(at int, name string) (*os.File, error) {
	fd, err := unix.Openat(at, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: name, Err: err}
	}
	return os.NewFile(uintptr(fd), name), nil
}

// move goes on from a directory to one beside it in the tree.
func move(directory **os.File, name string) error {
	next, err := openDirectory(int((*directory).Fd()), name)
	if err != nil {
		return err
	}
	err = (*directory).Close()
	*directory = next
	return err
}

func differ(one, other *os.File) (bool, error) {
	var first, second unix.Stat_t
	if err := errors.Join(unix.Fstat(int(one.Fd()), &first), unix.Fstat(int(other.Fd()), &second)); err != nil {
		return false, err
	}
	if first.Mode != second.Mode || first.Uid != second.Uid || first.Gid != second.Gid {
		return true, nil
	}
	ours, err := attributesOf(one)
	if err != nil {
		return false, err
	}
	theirs, err := attributesOf(other)
	return !maps.Equal(ours, theirs), err
}

// copyFacts gives a directory the owner, mode, attributes and time of another.
func copyFacts(from, to *os.File) error {
	var status unix.Stat_t
	if err := unix.Fstat(int(from.Fd()), &status); err != nil {
		return err
	}
	if err := unix.Fchown(int(to.Fd()), int(status.Uid), int(status.Gid)); err != nil {
		return err
	}
	attributes, err := attributesOf(from)
	if err != nil {
		return err
	}
	for name, value := range attributes {
		if err := unix.Fsetxattr(int(to.Fd()), name, []byte(value), 0); err != nil {
			return err
		}
	}
	if err := unix.Fchmod(int(to.Fd()), status.Mode&0o7777); err != nil {
		return err
	}
	return unix.UtimesNanoAt(int(to.Fd()), ".", []unix.Timespec{status.Mtim, status.Mtim}, 0)
}

// attributesOf are those that came with an image.
func attributesOf(directory *os.File) (map[string]string, error) {
	names, err := sized(func(into []byte) (int, error) { return unix.Flistxattr(int(directory.Fd()), into) })
	if errors.Is(err, unix.EOPNOTSUPP) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	attributes := map[string]string{}
	for name := range strings.SplitSeq(string(names), "\x00") {
		if !isOwnAttribute(name) {
			continue
		}
		value, err := sized(func(into []byte) (int, error) {
			return unix.Fgetxattr(int(directory.Fd()), name, into)
		})
		if err != nil {
			return nil, err
		}
		attributes[name] = string(value)
	}
	return attributes, nil
}

// sized reads what the kernel first tells the size of.
func sized(read func([]byte) (int, error)) ([]byte, error) {
	size, err := read(nil)
	if err != nil || size == 0 {
		return nil, err
	}
	into := make([]byte, size)
	size, err = read(into)
	return into[:max(size, 0)], err
}
