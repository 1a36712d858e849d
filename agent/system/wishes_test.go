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
	if err := s.OfferWishes(); err != nil {
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

func TestNothingIsWaitedForInThePlaceOfAWish(t *testing.T) {
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
		if err := put(filepath.Join(s.Root, WakeAtFile)); err != nil {
			t.Fatal(err)
		}
		s.ForgetWakeAt(time.Now(), true)
		if got, err := s.WakeAt(time.Now()); got != 0 || err != nil {
			t.Errorf("%s: %v, %v", name, got, err)
		}
	}
}

func TestWakeAtIsATimeToComeWithinAYear(t *testing.T) {
	s := &System{Root: t.TempDir()}
	if err := s.OfferWishes(); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(s.Root, WakeAtFile)
	written, now := time.Unix(1000, 0), time.Unix(1100, 0)
	for _, c := range []struct {
		text  string
		want  float64
		wrong bool
		stays bool // after a wake at that moment
	}{
		{"", 0, false, false},
		{"1100.5\n", 1100.5, false, false}, // due as good as now
		{"1200\n", 1200, false, true},
		{"+150", 1150, false, true},
		{"+100", 0, false, false},
		{"1099", 0, false, false},
		{"-5", 0, false, false},
		{"1764150000000", 0, true, true}, // milliseconds
		{"+1e300", 0, true, true},
		{"NaN", 0, true, true},
		{"tomorrow", 0, true, true},
	} {
		if err := os.WriteFile(path, []byte(c.text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(path, written, written); err != nil {
			t.Fatal(err)
		}
		got, err := s.WakeAt(now)
		if got != c.want || (err != nil) != c.wrong {
			t.Errorf("%q: %v, %v, not %v", c.text, got, err, c.want)
		}
		s.ForgetWakeAt(now, false)
		if left, _ := os.ReadFile(path); (len(left) > 0) != c.stays {
			t.Errorf("%q: %q is left", c.text, left)
		}
		s.ForgetWakeAt(now, true)
		if left, _ := os.ReadFile(path); len(left) > 0 {
			t.Errorf("%q: %q is left for ever", c.text, left)
		}
	}
}
