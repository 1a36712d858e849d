package system

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"
)

func TestKeepAwakeCountsFromWhenItWasWrittenAndIsBounded(t *testing.T) {
	s := &System{Root: t.TempDir()}
	if err := s.OfferKeepAwake(); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(s.Root, KeepAwakeFile)
	written := time.Unix(1000, 0)
	for _, c := range []struct {
		text string
		past time.Duration
		want float64
	}{
		{"", 0, 0},
		{"600\n", 0, 600},
		{"600", 100 * time.Second, 500},
		{"600", time.Hour, 0},
		{"1e300", time.Minute, 3540},
		{"NaN", 0, 0},
		{"-5", 0, 0},
		{"for ever", 0, 0},
		{"600", -time.Second, 0}, // from the future
	} {
		if err := os.WriteFile(path, []byte(c.text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(path, written, written); err != nil {
			t.Fatal(err)
		}
		if got := s.KeepAwake(written.Add(c.past)); got != c.want {
			t.Errorf("%q after %v: %v, not %v", c.text, c.past, got, c.want)
		}
	}
}

func TestKeepAwakeWaitsForNothingInItsPlace(t *testing.T) {
	for name, put := range map[string]func(string) error{
		"nothing":     func(string) error { return nil },
		"a pipe":      func(path string) error { return syscall.Mkfifo(path, 0o600) },
		"a link":      func(path string) error { return os.Symlink("/dev/zero", path) },
		"a directory": func(path string) error { return os.Mkdir(path, 0o700) },
	} {
		s := &System{Root: t.TempDir()}
		path := filepath.Join(s.Root, KeepAwakeFile)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := put(path); err != nil {
			t.Fatal(err)
		}
		if got := s.KeepAwake(time.Now()); got != 0 {
			t.Errorf("%s: %v", name, got)
		}
	}
}
