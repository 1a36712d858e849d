// Package watch reports changes below a directory by inotify.
package watch

import (
	"encoding/binary"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"atoll/agent/fault"
	"atoll/agent/user"
)

// The kinds of events.
const (
	Create = "create"
	Write  = "write"
	Remove = "remove"
	Rename = "rename"
	Chmod  = "chmod"
)

const (
	mask = syscall.IN_CREATE | syscall.IN_MODIFY | syscall.IN_DELETE | syscall.IN_DELETE_SELF |
		syscall.IN_MOVED_FROM | syscall.IN_MOVED_TO | syscall.IN_MOVE_SELF | syscall.IN_ATTRIB |
		syscall.IN_ONLYDIR | syscall.IN_EXCL_UNLINK
	readBytes  = 32 << 10
	eventQueue = 256
)

// Event is one change. Path is relative to the watched directory.
type Event struct {
	Kind string `json:"kind"`
	Path string `json:"path"`
}

// Watcher watches until it is closed; then, or when its directory is gone, Events is closed.
type Watcher struct {
	Events chan Event

	account   *user.Account
	root      string
	recursive bool
	file      *os.File
	fd        int
	closed    chan struct{}

	// Only the reading goroutine uses these.
	paths map[int32]string // relative directory of each watch, "" for the root
	watch map[string]int32
}

// Start watches a directory that the user may read. Close ends it.
func Start(account *user.Account, path string, recursive bool) (*Watcher, error) {
	fd, err := syscall.InotifyInit1(syscall.IN_CLOEXEC | syscall.IN_NONBLOCK)
	if err != nil {
		return nil, fault.New(fault.Busy, "inotify: %v", err)
	}
	w := &Watcher{
		Events: make(chan Event, eventQueue), account: account, root: path, recursive: recursive,
		file: os.NewFile(uintptr(fd), "inotify"), fd: fd, closed: make(chan struct{}),
		paths: map[int32]string{}, watch: map[string]int32{},
	}
	err = account.Act(func() error {
		info, err := os.Stat(path)
		if err != nil {
			return err
		}
		if !info.IsDir() {
			return fault.New(fault.NotADirectory, "path is not a directory: %s", path)
		}
		return w.add("", nil)
	})
	if err != nil {
		w.file.Close()
		if errors.Is(err, fs.ErrNotExist) {
			return nil, fault.New(fault.FileMissing, "path '%s' does not exist", path)
		}
		return nil, err
	}
	go w.run()
	return w, nil
}

// Close stops watching.
func (w *Watcher) Close() {
	close(w.closed)
	w.file.Close()
}

// add watches a directory, and with recursion what is below it. Entries that are there already are reported to found.
func (w *Watcher) add(relative string, found func(path string)) error {
	path := filepath.Join(w.root, relative)
	watch, err := syscall.InotifyAddWatch(w.fd, path, mask|onlyIfReal(relative))
	if err != nil {
		return &fs.PathError{Op: "watch", Path: path, Err: err}
	}
	w.paths[int32(watch)] = relative
	w.watch[relative] = int32(watch)
	if !w.recursive && found == nil {
		return nil
	}
	entries, err := os.ReadDir(path)
	if err != nil {
		return err
	}
	for _, entry := range entries {
		below := filepath.Join(relative, entry.Name())
		if found != nil {
			found(below)
		}
		if w.recursive && entry.IsDir() {
			// One that vanished or may not be read is not watched.
			_ = w.add(below, found)
		}
	}
	return nil
}

func onlyIfReal(relative string) uint32 {
	if relative == "" {
		return 0
	}
	return syscall.IN_DONT_FOLLOW
}

func (w *Watcher) run() {
	defer close(w.Events)
	buffer := make([]byte, readBytes)
	for {
		count, err := w.file.Read(buffer)
		if err != nil {
			return
		}
		for rest := buffer[:count]; len(rest) >= syscall.SizeofInotifyEvent; {
			length := int(binary.NativeEndian.Uint32(rest[12:]))
			name := strings.TrimRight(string(rest[syscall.SizeofInotifyEvent:syscall.SizeofInotifyEvent+length]), "\x00")
			if !w.handle(int32(binary.NativeEndian.Uint32(rest)), binary.NativeEndian.Uint32(rest[4:]), name) {
				return
			}
			rest = rest[syscall.SizeofInotifyEvent+length:]
		}
	}
}

// handle turns one event of the kernel into ours and tells whether to go on.
func (w *Watcher) handle(watch int32, bits uint32, name string) bool {
	directory, known := w.paths[watch]
	if !known {
		return true
	}
	if bits&syscall.IN_IGNORED != 0 {
		w.drop(watch)
		return directory != ""
	}
	if bits&(syscall.IN_DELETE_SELF|syscall.IN_MOVE_SELF) != 0 && directory != "" || name == "" && directory != "" {
		// The directory above reports it.
		return true
	}
	path := filepath.Join(directory, name)
	var missed []string
	if w.recursive && bits&syscall.IN_ISDIR != 0 {
		// Before it is told: whoever knows of a directory misses nothing that happens in it from then on.
		missed = w.follow(bits, path)
	}
	if kind := kindOf(bits); kind != "" && !w.send(Event{Kind: kind, Path: path}) {
		return false
	}
	for _, below := range missed {
		if !w.send(Event{Kind: Create, Path: below}) {
			return false
		}
	}
	return true
}

// follow keeps the watches in step with directories that come and go, and tells what a new one had in it already.
func (w *Watcher) follow(bits uint32, path string) (missed []string) {
	if bits&syscall.IN_MOVED_FROM != 0 {
		w.forget(path)
	}
	if bits&(syscall.IN_CREATE|syscall.IN_MOVED_TO) == 0 {
		return nil
	}
	// The directory may be gone again.
	_ = w.account.Act(func() error {
		var found func(string)
		if bits&syscall.IN_CREATE != 0 {
			found = func(below string) { missed = append(missed, below) }
		}
		return w.add(path, found)
	})
	return missed
}

func (w *Watcher) send(event Event) bool {
	select {
	case w.Events <- event:
		return true
	case <-w.closed:
		return false
	}
}

func (w *Watcher) drop(watch int32) {
	directory := w.paths[watch]
	delete(w.paths, watch)
	if w.watch[directory] == watch {
		delete(w.watch, directory)
	}
}

// forget ends the watches of a directory that was moved away, and of those below it.
func (w *Watcher) forget(path string) {
	for directory, watch := range w.watch {
		if directory == path || strings.HasPrefix(directory, path+"/") {
			w.drop(watch)
			// The kernel may have ended it by itself.
			_, _ = syscall.InotifyRmWatch(w.fd, uint32(watch))
		}
	}
}

func kindOf(bits uint32) string {
	switch {
	case bits&(syscall.IN_CREATE|syscall.IN_MOVED_TO) != 0:
		return Create
	case bits&(syscall.IN_DELETE|syscall.IN_DELETE_SELF) != 0:
		return Remove
	case bits&(syscall.IN_MOVED_FROM|syscall.IN_MOVE_SELF) != 0:
		return Rename
	case bits&syscall.IN_MODIFY != 0:
		return Write
	case bits&syscall.IN_ATTRIB != 0:
		return Chmod
	}
	return ""
}
