package regular

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

// others puts what is no regular file at a path.
var others = map[string]func(string) error{
	"a pipe":      func(path string) error { return syscall.Mkfifo(path, 0o600) },
	"a directory": func(path string) error { return os.Mkdir(path, 0o700) },
	"a device":    func(path string) error { return os.Symlink("/dev/zero", path) },
}

func TestNothingButARegularFileIsReadAndNothingIsWaitedFor(t *testing.T) {
	for name, put := range others {
		path := filepath.Join(t.TempDir(), "file")
		if err := put(path); err != nil {
			t.Fatal(err)
		}
		if text, err := Read(path); !errors.Is(err, os.ErrInvalid) {
			t.Errorf("%s: %q, %v", name, text, err)
		}
	}
}

func TestAFileIsMadeInPlaceOfWhatIsThereAndNotBehindALink(t *testing.T) {
	others["a link"] = func(path string) error { return os.Symlink(path+".target", path) }
	for name, put := range others {
		path := filepath.Join(t.TempDir(), "file")
		if err := put(path); err != nil {
			t.Fatal(err)
		}
		if err := Create(path, []byte("new"), 0o644); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if text, err := Read(path); err != nil || string(text) != "new" {
			t.Errorf("%s: %q, %v", name, text, err)
		}
		if _, err := os.Lstat(path + ".target"); err == nil {
			t.Errorf("%s: its target was written", name)
		}
	}
}
