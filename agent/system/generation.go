package system

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"syscall"

	"atoll/agent/regular"
)

// GenerationFile holds the number of the guest's life: another one after each restore.
const GenerationFile = "/run/atoll/generation"

// SetGeneration writes the number. The file stays the same file, so that a program can watch it,
// and at every moment it holds the old number or the new one. What is no regular file gives way to one.
func (s *System) SetGeneration(generation int64) error {
	text := []byte(strconv.FormatInt(generation, 10) + "\n")
	return s.publish(GenerationFile, func(path string) error {
		file, err := regular.Open(path, os.O_RDWR|os.O_CREATE|syscall.O_NOFOLLOW, 0o644)
		if err != nil {
			return regular.Create(path, text, 0o644)
		}
		defer file.Close()
		if old, err := io.ReadAll(io.LimitReader(file, int64(len(text)+1))); err == nil && string(old) == string(text) {
			return nil
		}
		if _, err := file.WriteAt(text, 0); err != nil {
			return err
		}
		// Who watches is told of a cut too, and numbers only grow: there is nothing to cut off unless somebody else wrote here.
		if info, err := file.Stat(); err != nil || info.Size() == int64(len(text)) {
			return err
		}
		return file.Truncate(int64(len(text)))
	})
}

// publish writes a file that tells programs inside something. Where they have made that impossible they are not told: it
// holds up no wake. A full disk is an error.
func (s *System) publish(name string, write func(path string) error) error {
	path := s.path(name)
	err := os.MkdirAll(filepath.Dir(path), 0o755)
	if err == nil {
		err = write(path)
	}
	if isFull(err) || errors.Is(err, syscall.EIO) {
		return err
	}
	return nil
}
