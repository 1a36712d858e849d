package files

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"atoll/agent/fault"
)

func content(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	must(t, err)
	return string(text)
}

func names(t *testing.T, directory string) string {
	t.Helper()
	entries, err := os.ReadDir(directory)
	must(t, err)
	var found []string
	for _, entry := range entries {
		found = append(found, entry.Name())
	}
	return strings.Join(found, " ")
}

func TestAFileIsReplacedAsAWholeAndKeepsItsMode(t *testing.T) {
	w, root := work(t)
	path := filepath.Join(root, "deep", "f")
	_, err := w.WriteWhole(path, NoMode, strings.NewReader("old"))
	must(t, err)
	must(t, os.Chmod(path, 0o750))
	reader, err := os.Open(path)
	must(t, err)
	defer reader.Close()
	file, err := w.WriteWhole(path, NoMode, strings.NewReader("new"))
	must(t, err)
	old := make([]byte, 10)
	size, _ := reader.Read(old)
	if file.Mode != 0o750 || file.Path != path || content(t, path) != "new" || string(old[:size]) != "old" {
		t.Fatal(file, content(t, path), string(old[:size]))
	}
	if file, err = w.WriteWhole(path, 0o600, strings.NewReader("")); err != nil || file.Mode != 0o600 {
		t.Fatal(file, err)
	}
	if names(t, filepath.Dir(path)) != "f" {
		t.Fatal(names(t, filepath.Dir(path)))
	}
}

func TestLinksAndOtherNamesStayWhenAFileIsReplaced(t *testing.T) {
	w, root := work(t)
	path := filepath.Join(root, "f")
	must(t, os.WriteFile(path, []byte("old"), 0o644))
	must(t, os.Symlink("f", filepath.Join(root, "link")))
	must(t, os.Link(path, filepath.Join(root, "twin")))
	_, err := w.WriteWhole(filepath.Join(root, "link"), NoMode, strings.NewReader("new"))
	must(t, err)
	if target, err := os.Readlink(filepath.Join(root, "link")); err != nil || target != "f" {
		t.Fatal(target, err)
	}
	if content(t, path) != "new" || content(t, filepath.Join(root, "twin")) != "new" {
		t.Fatal("a name has another content")
	}
	if _, err := w.WriteWhole(root, NoMode, strings.NewReader("")); fault.Of(err).Code != fault.IsADirectory {
		t.Fatal(err)
	}
}

type broken struct{}

func (broken) Read([]byte) (int, error) { return 0, errors.New("the line went dead") }

func TestAFileThatDoesNotArriveWholeChangesNothing(t *testing.T) {
	w, root := work(t)
	path := filepath.Join(root, "f")
	must(t, os.WriteFile(path, []byte("old"), 0o644))
	if _, err := w.WriteWhole(path, NoMode, broken{}); err == nil {
		t.Fatal("half a file was written")
	}
	if content(t, path) != "old" || names(t, root) != "f" {
		t.Fatal(content(t, path), names(t, root))
	}
}

func TestTheFilesOfATarAreWrittenWhereTheirNamesSay(t *testing.T) {
	w, root := work(t)
	var body bytes.Buffer
	out := tar.NewWriter(&body)
	for name, mode := range map[string]int64{"a/b": 0, "c": 0o755} {
		must(t, out.WriteHeader(&tar.Header{Name: name, Typeflag: tar.TypeReg, Size: 1, Mode: mode, Format: tar.FormatPAX}))
		_, err := out.Write([]byte("x"))
		must(t, err)
	}
	must(t, out.Close())
	resolve := func(name string) (string, error) { return filepath.Join(root, name), nil }
	written, err := w.WriteMany(bytes.NewReader(body.Bytes()), resolve)
	if err != nil || len(written) != 2 || content(t, filepath.Join(root, "a/b")) != "x" {
		t.Fatal(written, err)
	}
	if info, err := os.Stat(filepath.Join(root, "c")); err != nil || info.Mode().Perm() != 0o755 {
		t.Fatal(info, err)
	}
	if _, err := w.WriteMany(strings.NewReader("no tar"), resolve); fault.Of(err).Code != fault.Invalid {
		t.Fatal(err)
	}
}

func TestFilesAndDirectoriesAreCopied(t *testing.T) {
	w, root := work(t)
	must(t, os.MkdirAll(filepath.Join(root, "a/closed"), 0o755))
	must(t, os.WriteFile(filepath.Join(root, "a/f"), []byte("x"), 0o750))
	must(t, os.Symlink("f", filepath.Join(root, "a/link")))
	must(t, os.Chmod(filepath.Join(root, "a/closed"), 0o555))
	file, err := w.Copy(filepath.Join(root, "a"), filepath.Join(root, "new/b"), true)
	must(t, err)
	if file.Kind != KindDirectory || names(t, filepath.Join(root, "new/b")) != "closed f link" || names(t, filepath.Join(root, "new")) != "b" {
		t.Fatal(file, names(t, filepath.Join(root, "new")))
	}
	if info, err := os.Stat(filepath.Join(root, "new/b/closed")); err != nil || info.Mode().Perm() != 0o555 {
		t.Fatal(info, err)
	}
	must(t, os.WriteFile(filepath.Join(root, "g"), []byte("old"), 0o644))
	if _, err = w.Copy(filepath.Join(root, "a/f"), filepath.Join(root, "g"), false); err != nil || content(t, filepath.Join(root, "g")) != "x" {
		t.Fatal(err)
	}
	for to, code := range map[string]fault.Code{"new/b": fault.FileTaken, "g/x": fault.NotADirectory, "a": fault.Invalid, "a/in": fault.Invalid} {
		if _, err := w.Copy(filepath.Join(root, "a"), filepath.Join(root, to), false); fault.Of(err).Code != code {
			t.Errorf("%s: %v", to, err)
		}
	}
}

func TestModesOfATreeChangeButNotThroughLinks(t *testing.T) {
	w, root := work(t)
	must(t, os.MkdirAll(filepath.Join(root, "a/b"), 0o755))
	must(t, os.WriteFile(filepath.Join(root, "a/b/f"), nil, 0o644))
	must(t, os.WriteFile(filepath.Join(root, "other"), nil, 0o644))
	must(t, os.Symlink("../other", filepath.Join(root, "a/link")))
	must(t, w.Chmod(t.Context(), filepath.Join(root, "a"), 0o700, true))
	for name, mode := range map[string]os.FileMode{"a": 0o700, "a/b": 0o700, "a/b/f": 0o700, "other": 0o644} {
		if info, err := os.Stat(filepath.Join(root, name)); err != nil || info.Mode().Perm() != mode {
			t.Errorf("%s: %v %v", name, info.Mode(), err)
		}
	}
	must(t, w.Chmod(t.Context(), filepath.Join(root, "a/link"), 0o2640, false))
	if file, err := w.Stat(filepath.Join(root, "other"), false); err != nil || file.Mode != 0o2640 {
		t.Fatal(file, err)
	}
	must(t, w.Chown(t.Context(), filepath.Join(root, "a"), w.Account, true))
	if err := w.Chown(t.Context(), filepath.Join(root, "nosuch"), w.Account, true); fault.Of(err).Code != fault.FileMissing {
		t.Fatal(err)
	}
}

func TestAGlobFindsPathsInOrder(t *testing.T) {
	w, root := work(t)
	for _, name := range []string{"b.py", "a.py", "pkg/c.py", ".dot/d.py"} {
		_, err := w.Write(filepath.Join(root, name), NoMode, strings.NewReader(""))
		must(t, err)
	}
	for _, each := range []struct {
		depth  int
		hidden bool
		want   string
	}{{1, false, "a.py b.py"}, {9, false, "a.py b.py c.py"}, {9, true, "d.py a.py b.py c.py"}} {
		found, err := w.Glob(root, func(_, name string) bool { return strings.HasSuffix(name, ".py") }, each.depth, each.hidden)
		must(t, err)
		var got []string
		for _, file := range found {
			got = append(got, file.Name)
		}
		if strings.Join(got, " ") != each.want {
			t.Errorf("%v finds %v", each, got)
		}
	}
	if GlobDepth("*/*.py") != 2 || GlobDepth("**/x") < 1000 || GlobDepth("/a/") != 1 {
		t.Fatal("wrong depths")
	}
}

// chain makes directories, each in the one before.
func chain(t *testing.T, root string, levels int) {
	t.Helper()
	at, err := os.OpenRoot(root)
	must(t, err)
	for range levels {
		name := strings.Repeat("d", 100)
		must(t, at.Mkdir(name, 0o755))
		next, err := at.OpenRoot(name)
		must(t, err)
		at.Close()
		at = next
	}
	at.Close()
}

func TestWhatLiesDeeperThanAPathCanNameIsRefusedAtOnce(t *testing.T) {
	w, root := work(t)
	chain(t, root, 300)
	began := time.Now()
	if err := w.Chmod(t.Context(), root, 0o700, true); err == nil || !strings.Contains(err.Error(), "name too long") {
		t.Fatal(err)
	}
	if err := w.Chown(t.Context(), root, w.Account, true); err == nil || !strings.Contains(err.Error(), "name too long") {
		t.Fatal(err)
	}
	if took := time.Since(began); took > 2*time.Second {
		t.Fatal(took)
	}
}

func TestAChangeOfATreeEndsWithItsClient(t *testing.T) {
	w, root := work(t)
	chain(t, root, 3)
	gone, leave := context.WithCancel(t.Context())
	leave()
	if err := w.Chmod(gone, root, 0o700, true); err == nil {
		t.Fatal("it went on")
	}
}
