package files

import (
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"atoll/agent/fault"
	"atoll/agent/user"
)

func me(t *testing.T) *user.Account {
	return &user.Account{
		Name: "me", UID: uint32(os.Geteuid()), GID: uint32(os.Getegid()), Home: t.TempDir(), Shell: "/bin/sh",
	}
}

func work(t *testing.T) (Work, string) {
	return Work{Account: me(t), Users: &user.Database{Root: t.TempDir()}}, t.TempDir()
}

func code(err error) fault.Code {
	if err == nil {
		return ""
	}
	return fault.Of(err).Code
}

func put(t *testing.T, w Work, path, text string) {
	t.Helper()
	if _, err := w.Write(path, NoMode, strings.NewReader(text)); err != nil {
		t.Fatal(err)
	}
}

func TestPathsStartAtTheBaseOrTheHome(t *testing.T) {
	account := &user.Account{Name: "user", Home: "/home/user"}
	users := &user.Database{Root: t.TempDir()}
	for path, wanted := range map[string]string{
		"": "/work", "a/b": "/work/a/b", "/x/../y": "/y", "~": "/home/user", "~/a": "/home/user/a",
		"~root/a": "/root/a", "~strange": "/work/~strange", "..": "/", "../../..": "/",
	} {
		got, err := Resolve(path, "/work", account, users)
		if err != nil || got != wanted {
			t.Errorf("%q: %q, %v; wanted %q", path, got, err, wanted)
		}
	}
	if _, err := Resolve("a\x00b", "/", account, users); code(err) != fault.Invalid {
		t.Error("a zero byte passed")
	}
}

func TestAWrittenFileHasItsModeAndItsParents(t *testing.T) {
	w, directory := work(t)
	path := filepath.Join(directory, "a/b/c")
	file, err := w.Write(path, 0o640, strings.NewReader("hello"))
	if err != nil || file.Mode != 0o640 || file.SizeBytes != 5 || file.Kind != KindFile || file.Name != "c" {
		t.Fatalf("%+v, %v", file, err)
	}
	file, err = w.Write(path, NoMode, strings.NewReader("hi"))
	if err != nil || file.Mode != 0o640 || file.SizeBytes != 2 {
		t.Fatalf("an existing file keeps its mode: %+v, %v", file, err)
	}
}

func TestErrorsSayWhatIsInTheWay(t *testing.T) {
	w, directory := work(t)
	file := filepath.Join(directory, "file")
	put(t, w, file, "x")
	_, _, missing := w.Open(filepath.Join(directory, "missing"))
	_, _, isDirectory := w.Open(directory)
	_, notDirectory := w.List(file, 1)
	_, taken := w.MakeDirectory(directory, false)
	_, under := w.MakeDirectory(filepath.Join(file, "x"), true)
	_, moved := w.Move(filepath.Join(directory, "missing"), file, false)
	for wanted, err := range map[fault.Code]error{
		fault.IsADirectory: isDirectory, fault.FileTaken: taken,
	} {
		if code(err) != wanted {
			t.Errorf("%v, wanted %s", err, wanted)
		}
	}
	for _, err := range []error{missing, moved, w.Remove(filepath.Join(directory, "missing"))} {
		if code(err) != fault.FileMissing {
			t.Errorf("%v, wanted file_missing", err)
		}
	}
	for _, err := range []error{notDirectory, under} {
		if code(err) != fault.NotADirectory {
			t.Errorf("%v, wanted not_a_directory", err)
		}
	}
	if err := w.Remove("/"); code(err) != fault.Denied {
		t.Error(err)
	}
}

func TestAListingIsInOrderAndAsDeepAsAsked(t *testing.T) {
	w, directory := work(t)
	for _, name := range []string{"b/two", "a", "b/c/three"} {
		put(t, w, filepath.Join(directory, name), "")
	}
	if err := os.Symlink("/nowhere", filepath.Join(directory, "z")); err != nil {
		t.Fatal(err)
	}
	names := func(depth int) string {
		found, err := w.List(directory, depth)
		if err != nil {
			t.Fatal(err)
		}
		var text []string
		for _, file := range found {
			text = append(text, strings.TrimPrefix(file.Path, directory+"/")+":"+file.Kind[:1]+file.Target)
		}
		return strings.Join(text, " ")
	}
	if got := names(0); got != "a:f b:d z:s/nowhere" {
		t.Error(got)
	}
	if got := names(9); got != "a:f b:d b/c:d b/c/three:f b/two:f z:s/nowhere" {
		t.Error(got)
	}
}

func TestANamedPipeDoesNotBlockAReader(t *testing.T) {
	w, directory := work(t)
	path := filepath.Join(directory, "pipe")
	if err := mkfifo(path); err != nil {
		t.Fatal(err)
	}
	if _, _, err := w.Open(path); code(err) != fault.FileFailed {
		t.Fatal(err)
	}
}

func TestALoopOfLinksIsAFailureOfTheFileSystem(t *testing.T) {
	w, directory := work(t)
	path := filepath.Join(directory, "loop")
	if err := os.Symlink("loop", path); err != nil {
		t.Fatal(err)
	}
	if _, err := w.Stat(path, true); code(err) != fault.FileFailed {
		t.Fatal(err)
	}
}

func TestFilesAreJoinedAndTheirSourcesRemoved(t *testing.T) {
	w, directory := work(t)
	one, two, all := filepath.Join(directory, "1"), filepath.Join(directory, "2"), filepath.Join(directory, "all")
	put(t, w, one, "a")
	put(t, w, two, "b")
	if err := w.Join([]string{one, filepath.Join(directory, "missing")}, all); code(err) != fault.FileMissing {
		t.Fatal(err)
	}
	if err := w.Join([]string{one, two}, all); err != nil {
		t.Fatal(err)
	}
	file, _, err := w.Open(all)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if text, _ := io.ReadAll(file); string(text) != "ab" {
		t.Fatalf("%q", text)
	}
	if _, err := w.Stat(one, false); code(err) != fault.FileMissing {
		t.Fatal("the source is still there")
	}
}
