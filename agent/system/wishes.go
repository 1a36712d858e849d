package system

import (
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"atoll/agent/regular"
)

const wishBytes = 32

// OfferWishes makes the files in which programs inside say when the sandbox is to be awake, so that every user may
// write them.
func (s *System) OfferWishes() error {
	for _, name := range []string{KeepAwakeFile, WakeAtFile} {
		if err := s.offer(s.path(name)); err != nil {
			return err
		}
	}
	return nil
}

func (s *System) offer(path string) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0o666)
	if err != nil {
		return err
	}
	defer file.Close()
	return file.Chmod(0o666)
}

// wish is what such a file says, and when it was written. An empty text is no wish.
func (s *System) wish(name string, now time.Time) (text string, written time.Time) {
	file, err := s.openWish(name, os.O_RDONLY)
	if err != nil {
		return "", now
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil || info.ModTime().After(now) {
		return "", now
	}
	bytes, err := io.ReadAll(io.LimitReader(file, wishBytes))
	if err != nil {
		return "", now
	}
	return strings.TrimSpace(string(bytes)), info.ModTime()
}

// openWish opens such a file. Whoever wrote it may have put anything in its place: nothing there is waited for.
func (s *System) openWish(name string, how int) (*os.File, error) {
	return regular.Open(s.path(name), how|syscall.O_NOFOLLOW, 0)
}
