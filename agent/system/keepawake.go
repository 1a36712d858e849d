package system

import (
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// KeepAwakeFile is where a program inside says for how many seconds from now the sandbox is to stay awake.
const KeepAwakeFile = "/run/atoll/keep-awake"

const (
	keepAwakeMost  = time.Hour
	keepAwakeBytes = 32
)

// OfferKeepAwake makes the file, so that every user may write it.
func (s *System) OfferKeepAwake() error {
	path := s.path(KeepAwakeFile)
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

// KeepAwake is how many seconds are left of what the file asks for: at most an hour, counted from when it was written.
func (s *System) KeepAwake(now time.Time) float64 {
	// Whoever wrote it may have put anything in its place: nothing there is waited for, and little is read.
	file, err := os.OpenFile(s.path(KeepAwakeFile), os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	if err != nil {
		return 0
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil || !info.Mode().IsRegular() || info.ModTime().After(now) {
		return 0
	}
	text, err := io.ReadAll(io.LimitReader(file, keepAwakeBytes))
	if err != nil {
		return 0
	}
	seconds, err := strconv.ParseFloat(strings.TrimSpace(string(text)), 64)
	if err != nil || !(seconds > 0) {
		return 0
	}
	asked := min(seconds, keepAwakeMost.Seconds())
	return max(0, asked-now.Sub(info.ModTime()).Seconds())
}
