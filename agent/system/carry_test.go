package system

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"
)

func tree(t *testing.T, files map[string]string) string {
	t.Helper()
	root := t.TempDir()
	for name, text := range files {
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o640); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

func TestWhatAnImageHasIsCarriedWithItsModesAndTimesBesideWhatIsThere(t *testing.T) {
	from := tree(t, map[string]string{"pg/conf": "1", "both": "image", "held/a": "a"})
	to := tree(t, map[string]string{"both": "there", "held/b": "b"})
	long := time.Unix(1_000_000_000, 0)
	for _, step := range []error{
		os.Symlink("pg/conf", filepath.Join(from, "link")), os.Chmod(filepath.Join(from, "pg"), 0o1777|os.ModeSticky),
		os.Chtimes(filepath.Join(from, "pg"), long, long),
	} {
		if step != nil {
			t.Fatal(step)
		}
	}
	if err := carry(from, to, 10); err != nil {
		t.Fatal(err)
	}
	for name, wanted := range map[string]string{"link": "1", "both": "there", "held/a": "a", "held/b": "b"} {
		if text, err := os.ReadFile(filepath.Join(to, name)); err != nil || string(text) != wanted {
			t.Errorf("%s: %q, %v", name, text, err)
		}
	}
	info, err := os.Stat(filepath.Join(to, "pg"))
	if err != nil || info.Mode() != os.ModeDir|os.ModeSticky|0o777 || !info.ModTime().Equal(long) {
		t.Error(info, err)
	}
}

func TestWhatIsTooBigOrMissingInAnImageIsNotCarried(t *testing.T) {
	if err := carry(tree(t, map[string]string{"a": "12345"}), t.TempDir(), 4); !errors.Is(err, errTooBig) {
		t.Error(err)
	}
	if err := carry(filepath.Join(t.TempDir(), "missing"), t.TempDir(), 4); err != nil {
		t.Error(err)
	}
}
