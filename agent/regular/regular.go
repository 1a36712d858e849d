// Package regular opens files at fixed places of the guest. Programs inside may have put anything there: nothing is waited
// for, and only regular files are read or written.
package regular

import (
	"io"
	"os"
	"syscall"
)

// What has more is no file that the agent knows.
const most = 64 << 20

// Open opens a regular file. What is none is os.ErrInvalid.
func Open(path string, how int, mode os.FileMode) (*os.File, error) {
	file, err := os.OpenFile(path, how|syscall.O_NONBLOCK, mode)
	if err != nil {
		return nil, err
	}
	if info, err := file.Stat(); err != nil || !info.Mode().IsRegular() {
		file.Close()
		return nil, &os.PathError{Op: "open", Path: path, Err: os.ErrInvalid}
	}
	return file, nil
}

// Read is what a regular file has, which a link may lead to.
func Read(path string) ([]byte, error) {
	file, err := Open(path, os.O_RDONLY, 0)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	return io.ReadAll(io.LimitReader(file, most))
}

// Create makes a file anew in place of whatever is there; a directory with something in it stays, and is an error.
func Create(path string, text []byte, mode os.FileMode) error {
	if err := os.Remove(path); err != nil && !os.IsNotExist(err) {
		return err
	}
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if err != nil {
		return err
	}
	if _, err = file.Write(text); err != nil {
		file.Close()
		return err
	}
	return file.Close()
}
