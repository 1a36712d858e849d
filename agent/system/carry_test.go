package system

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"
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
	if _, err := carry(from, to, 1<<20); err != nil {
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

func TestHardLinksStayLinks(t *testing.T) {
	from, to := tree(t, map[string]string{"a/one": "1", "other": "1"}), t.TempDir()
	if err := os.Link(filepath.Join(from, "a/one"), filepath.Join(from, "two")); err != nil {
		t.Fatal(err)
	}
	if left, err := carry(from, to, 4*perEntry+2*page); err != nil || left != 0 {
		t.Fatal("what is in a link counts once: ", left, err)
	}
	var infos []os.FileInfo
	for _, name := range []string{"a/one", "two", "other"} {
		info, err := os.Stat(filepath.Join(to, name))
		if err != nil {
			t.Fatal(err)
		}
		infos = append(infos, info)
	}
	if !os.SameFile(infos[0], infos[1]) || os.SameFile(infos[0], infos[2]) {
		t.Error(infos)
	}
}

func TestNothingIsCarriedOfWhatIsTooMuch(t *testing.T) {
	empty := map[string]string{}
	for index := range 2 * atOnce {
		empty["d/"+strconv.Itoa(index)] = ""
	}
	endless := tree(t, map[string]string{"a": "", "hole": ""})
	if err := os.Truncate(filepath.Join(endless, "hole"), 1<<43); err != nil {
		t.Fatal(err)
	}
	for name, each := range map[string]struct {
		from string
		most int64
	}{
		"bytes":   {tree(t, map[string]string{"a": "1", "b": "12345"}), 2*perEntry + 2*page - 1},
		"entries": {tree(t, empty), 2 * atOnce * perEntry},
		"a hole":  {endless, carryMost},
	} {
		to := t.TempDir()
		left, err := carry(each.from, to, each.most)
		if !errors.Is(err, errTooBig) || left != each.most {
			t.Error(name, left, err)
		}
		if made, err := os.ReadDir(to); err != nil || len(made) > 0 {
			t.Error(name, made, err)
		}
	}
	if left, err := carry(tree(t, empty), t.TempDir(), (2*atOnce+1)*perEntry); err != nil || left != 0 {
		t.Error(left, err)
	}
}

func TestWhatAnImageDoesNotHaveIsNotCarried(t *testing.T) {
	if left, err := carry(filepath.Join(t.TempDir(), "missing"), t.TempDir(), 4); err != nil || left != 4 {
		t.Error(left, err)
	}
}

func TestWhatIsCarriedIsAModestPartOfTheMemory(t *testing.T) {
	if bound := carryBound(); bound <= 0 || bound > carryMost {
		t.Error(bound)
	}
}
