package files

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"atoll/agent/fault"
	"atoll/agent/user"
)

const stranger = 54321

// given is work for a user without rights, and a directory in which only root may write.
func given(t *testing.T) (Work, string) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("only root can give files away")
	}
	directory := t.TempDir()
	for above := directory; above != os.TempDir() && above != "/"; above = filepath.Dir(above) {
		if err := os.Chmod(above, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	account := &user.Account{Name: "user", UID: stranger, GID: stranger, Groups: []uint32{stranger}}
	return Work{Account: account, Users: &user.Database{Root: t.TempDir()}, Gives: true}, directory
}

func owner(t *testing.T, path string) uint32 {
	t.Helper()
	info, err := os.Lstat(path)
	if err != nil {
		t.Fatal(err)
	}
	return info.Sys().(*syscall.Stat_t).Uid
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestWhatTheUserMayNotMakeIsMadeAndGivenToTheUser(t *testing.T) {
	w, directory := given(t)
	path := filepath.Join(directory, "app/src/x")
	put(t, w, path, "hello")
	for _, mine := range []string{path, filepath.Dir(path), filepath.Join(directory, "app")} {
		if owner(t, mine) != stranger {
			t.Errorf("%s is not the user's", mine)
		}
	}
	if owner(t, directory) != 0 {
		t.Error("what was there was given away")
	}
	if content, err := os.ReadFile(path); err != nil || string(content) != "hello" {
		t.Errorf("%q, %v", content, err)
	}
	if info, err := os.Stat(path); err != nil || info.Mode() != 0o644 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
	file, err := w.MakeDirectory(filepath.Join(directory, "a/b"), true)
	if err != nil || file.Kind != KindDirectory || owner(t, file.Path) != stranger {
		t.Errorf("%+v, %v", file, err)
	}
	w.Gives = false
	if _, err := w.MakeDirectory(filepath.Join(directory, "c"), true); code(err) != fault.Denied {
		t.Error(err)
	}
	if _, err := w.Create(filepath.Join(directory, "d"), NoMode); code(err) != fault.Denied {
		t.Error(err)
	}
}

func TestAFileOfRootIsWrittenAndGivenToTheUser(t *testing.T) {
	w, directory := given(t)
	path := filepath.Join(directory, "config")
	must(t, os.WriteFile(path, []byte("a long old text"), 0o600))
	put(t, w, path, "new")
	if content, err := os.ReadFile(path); err != nil || string(content) != "new" || owner(t, path) != stranger {
		t.Errorf("%q, %v", content, err)
	}
}

func TestOnlyLinksOfRootLeadToWhatTheUserMayNotWrite(t *testing.T) {
	w, directory := given(t)
	real := filepath.Join(directory, "real")
	must(t, os.Mkdir(real, 0o755))
	must(t, os.Symlink("real/../real", filepath.Join(directory, "root")))
	must(t, os.Symlink(real, filepath.Join(directory, "absolute")))
	must(t, os.Symlink("real/late", filepath.Join(directory, "file")))
	must(t, os.Symlink("loop", filepath.Join(directory, "loop")))
	put(t, w, filepath.Join(directory, "root/one"), "1")
	put(t, w, filepath.Join(directory, "absolute/two"), "2")
	put(t, w, filepath.Join(directory, "file"), "3")
	for _, name := range []string{"one", "two", "late"} {
		if owner(t, filepath.Join(real, name)) != stranger {
			t.Errorf("%s is not the user's", name)
		}
	}
	if _, err := w.createGiven(filepath.Join(directory, "loop")); code(err) != fault.FileFailed {
		t.Error(err)
	}
	must(t, os.WriteFile(filepath.Join(real, "secret"), []byte("s"), 0o600))
	for name, target := range map[string]string{"planted": "real", "straight": "real/secret"} {
		link := filepath.Join(directory, name)
		must(t, os.Symlink(target, link))
		must(t, os.Lchown(link, stranger, stranger))
	}
	for _, path := range []string{"planted/new", "planted/secret", "straight"} {
		if _, err := w.Create(filepath.Join(directory, path), NoMode); code(err) != fault.Denied {
			t.Errorf("%s: %v", path, err)
		}
	}
	if _, err := w.MakeDirectory(filepath.Join(directory, "planted/new"), true); code(err) != fault.Denied {
		t.Error(err)
	}
	if owner(t, filepath.Join(real, "secret")) != 0 {
		t.Error("a link of the user led to a file of root")
	}
}

func TestOnlyAPlainFileWithOneNameIsGivenAway(t *testing.T) {
	w, directory := given(t)
	must(t, os.WriteFile(filepath.Join(directory, "secret"), []byte("s"), 0o600))
	must(t, os.Link(filepath.Join(directory, "secret"), filepath.Join(directory, "other")))
	must(t, syscall.Mkfifo(filepath.Join(directory, "pipe"), 0o600))
	must(t, os.Mkdir(filepath.Join(directory, "sub"), 0o700))
	for name, wanted := range map[string]fault.Code{
		"other": fault.Denied, "pipe": fault.FileFailed, "sub": fault.IsADirectory,
		"secret/x": fault.NotADirectory, "..": fault.IsADirectory,
	} {
		if _, err := w.createGiven(directory + "/" + name); code(err) != wanted {
			t.Errorf("%s: %v", name, err)
		}
	}
	if content, err := os.ReadFile(filepath.Join(directory, "secret")); err != nil || string(content) != "s" {
		t.Errorf("%q, %v", content, err)
	}
	if _, err := w.MakeDirectory(filepath.Join(directory, "secret/x"), true); code(err) != fault.NotADirectory {
		t.Error(err)
	}
}

func TestPartsOfAFileAreJoinedWhereTheUserMayNotWrite(t *testing.T) {
	w, directory := given(t)
	own := filepath.Join(directory, "own")
	must(t, os.Mkdir(own, 0o755))
	must(t, os.Chown(own, stranger, stranger))
	put(t, w, filepath.Join(own, "a"), "1")
	put(t, w, filepath.Join(own, "b"), "2")
	whole := filepath.Join(directory, "app/whole")
	must(t, w.Join([]string{filepath.Join(own, "a"), filepath.Join(own, "b")}, whole))
	if content, err := os.ReadFile(whole); err != nil || strings.TrimSpace(string(content)) != "12" {
		t.Errorf("%q, %v", content, err)
	}
}
