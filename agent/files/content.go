package files

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"syscall"

	"atoll/agent/fault"
)

const (
	copyBytes = 256 << 10
	// heldBytes is the largest file that is read before its length is announced.
	heldBytes = 64 << 10
)

var copyBuffers = sync.Pool{New: func() any { return new([copyBytes]byte) }}

// Copy moves all bytes through a buffer of constant size.
func Copy(to io.Writer, from io.Reader) (int64, error) {
	buffer := copyBuffers.Get().(*[copyBytes]byte)
	defer copyBuffers.Put(buffer)
	// Plain readers and writers: the shortcuts of io.Copy take buffers of their own.
	return io.CopyBuffer(struct{ io.Writer }{to}, struct{ io.Reader }{from}, buffer[:])
}

// Content returns the content of an open file to send, and its length. A small file is read at once: a program that
// rewrites it meanwhile would make the content shorter than announced.
func Content(file *os.File, info fs.FileInfo) (io.ReadSeeker, int64, error) {
	// Files of /proc say that they are empty and are not.
	if info.Size() == 0 || info.Size() > heldBytes {
		return file, info.Size(), nil
	}
	held, err := readAtOnce(file, int(info.Size()))
	return bytes.NewReader(held), int64(len(held)), err
}

// readAtOnce reads a file that had this size. Only one that has grown is read twice: another read would add the end of a new
// content to the old one.
func readAtOnce(file *os.File, size int) ([]byte, error) {
	held := make([]byte, size+1)
	count, err := file.Read(held)
	if err == io.EOF { // nothing is left of it
		err = nil
	}
	if err != nil || count < len(held) {
		return held[:count], err
	}
	rest, err := io.ReadAll(io.LimitReader(file, int64(heldBytes-count)))
	return append(held, rest...), err
}

// Open opens a regular file for reading. The caller closes it.
func (w Work) Open(path string) (file *os.File, info fs.FileInfo, err error) {
	err = w.Account.Act(func() error {
		// Without O_NONBLOCK a named pipe would wait for its writer.
		file, err = os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
		return err
	})
	if err != nil {
		return nil, nil, Named(err, path)
	}
	info, err = file.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = fault.New(fault.FileFailed, "path '%s' is not a regular file", path)
		if info.IsDir() {
			err = fault.New(fault.IsADirectory, "path '%s' is a directory", path)
		}
	}
	if err != nil {
		file.Close()
		return nil, nil, Named(err, path)
	}
	return file, info, nil
}

// NoMode leaves the mode of a written file to the umask.
const NoMode = -1

// Create opens a file for its new content, making it and the directories above it where they are missing.
// The caller closes it.
func (w Work) Create(path string, mode int) (file *os.File, err error) {
	err = w.Account.Act(func() error {
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		file, err = w.create(path, mode)
		return err
	})
	if mode == NoMode && w.gives(err) {
		file, err = w.createGiven(path)
	}
	return file, Named(err, path)
}

func (w Work) create(path string, mode int) (*os.File, error) {
	const flags = os.O_WRONLY | syscall.O_NONBLOCK
	file, err := os.OpenFile(path, flags|os.O_CREATE|os.O_EXCL, 0o644)
	made := err == nil
	if errors.Is(err, fs.ErrExist) {
		file, err = os.OpenFile(path, flags|os.O_TRUNC|os.O_CREATE, 0o644)
	}
	if err != nil {
		return nil, err
	}
	if made && mode == NoMode {
		// Watchers of E2B's protocol expect a change of mode between the making and the writing of a file.
		mode = 0o644
	}
	if mode != NoMode {
		err = syscall.Fchmod(int(file.Fd()), uint32(mode)&modeBits)
	}
	if err != nil {
		file.Close()
		return nil, err
	}
	return file, nil
}

// Write makes a file of everything in the body, and describes what it has become.
func (w Work) Write(path string, mode int, body io.Reader) (File, error) {
	file, err := w.Create(path, mode)
	if err != nil {
		return File{}, err
	}
	_, err = Copy(file, body)
	var info fs.FileInfo
	if err == nil {
		info, err = file.Stat()
	}
	if closed := file.Close(); err == nil {
		err = closed
	}
	if err != nil {
		return File{}, Named(err, path)
	}
	return describe(path, info, w.Users), nil
}

// copyAcross copies a file or a tree to another file system.
func copyAcross(path, to string) error {
	info, err := os.Lstat(path)
	if err != nil {
		return err
	}
	switch {
	case info.IsDir():
		return copyDirectory(path, to, info)
	case info.Mode()&fs.ModeSymlink != 0:
		target, err := os.Readlink(path)
		if err != nil {
			return err
		}
		return os.Symlink(target, to)
	case info.Mode().IsRegular():
		return copyRegular(path, to, info)
	}
	return fault.New(fault.FileFailed, "%s is a special file, which cannot be copied", path)
}

func copyDirectory(path, to string, info fs.FileInfo) error {
	if err := os.Mkdir(to, 0o700); err != nil {
		return err
	}
	entries, err := os.ReadDir(path)
	if err != nil {
		return err
	}
	for _, entry := range entries {
		if err := copyAcross(filepath.Join(path, entry.Name()), filepath.Join(to, entry.Name())); err != nil {
			return err
		}
	}
	return keepTimes(to, info)
}

func copyRegular(path, to string, info fs.FileInfo) error {
	from, err := os.Open(path)
	if err != nil {
		return err
	}
	defer from.Close()
	file, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = Copy(file, from)
	if closed := file.Close(); err == nil {
		err = closed
	}
	if err != nil {
		return err
	}
	return keepTimes(to, info)
}

func keepTimes(path string, info fs.FileInfo) error {
	raw := info.Sys().(*syscall.Stat_t)
	if err := syscall.Chmod(path, raw.Mode&modeBits); err != nil {
		return err
	}
	return os.Chtimes(path, info.ModTime(), info.ModTime())
}
