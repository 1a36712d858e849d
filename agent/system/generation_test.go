package system

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

func TestWhatIsInThePlaceOfTheGenerationGivesWayAndHoldsUpNothing(t *testing.T) {
	for name, put := range map[string]func(string) error{
		"a pipe":      func(path string) error { return syscall.Mkfifo(path, 0o600) },
		"a link":      func(path string) error { return os.Symlink("../../target", path) },
		"a directory": func(path string) error { return os.Mkdir(path, 0o700) },
		"a long text": func(path string) error { return os.WriteFile(path, []byte("123456789\n"), 0o600) },
	} {
		s := &System{Root: t.TempDir()}
		target := filepath.Join(s.Root, "target")
		if err := os.WriteFile(target, []byte("kept"), 0o600); err != nil {
			t.Fatal(err)
		}
		for _, file := range []string{GenerationFile, EnvironmentFile + ".new"} {
			path := filepath.Join(s.Root, file)
			if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
				t.Fatal(err)
			}
			if err := put(path); err != nil {
				t.Fatal(err)
			}
		}
		if err := s.SetGeneration(2); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if err := s.SetEnvironment(map[string]string{"A": "1"}); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		for file, want := range map[string]string{GenerationFile: "2\n", EnvironmentFile: `{"A":"1"}`, "target": "kept"} {
			if text, err := os.ReadFile(filepath.Join(s.Root, file)); err != nil || string(text) != want {
				t.Errorf("%s: %s has %q, %v", name, file, text, err)
			}
		}
	}
}

func TestAGuestThatCannotBeToldItsGenerationGoesOn(t *testing.T) {
	s := &System{Root: t.TempDir()}
	if err := os.WriteFile(filepath.Join(s.Root, "run"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := s.SetGeneration(2); err != nil {
		t.Error(err)
	}
}
