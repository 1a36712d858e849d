package watch

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"atoll/agent/fault"
	"atoll/agent/user"
)

func start(t *testing.T, path string, recursive bool) *Watcher {
	t.Helper()
	w, err := Start(&user.Account{Name: "me", UID: uint32(os.Geteuid())}, path, recursive)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.Close)
	return w
}

func await(t *testing.T, w *Watcher, wanted Event) {
	t.Helper()
	limit := time.After(60 * time.Second)
	for {
		select {
		case event, open := <-w.Events:
			if !open {
				t.Fatalf("the watch ended before %v", wanted)
			}
			if event == wanted {
				return
			}
		case <-limit:
			t.Fatalf("%v did not come", wanted)
		}
	}
}

func do(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestAFileIsSeenToComeChangeAndGo(t *testing.T) {
	directory := t.TempDir()
	w := start(t, directory, false)
	path := filepath.Join(directory, "file")
	do(t, os.WriteFile(path, []byte("x"), 0o600))
	await(t, w, Event{Create, "file"})
	await(t, w, Event{Write, "file"})
	do(t, os.Chmod(path, 0o644))
	await(t, w, Event{Chmod, "file"})
	do(t, os.Rename(path, path+"2"))
	await(t, w, Event{Rename, "file"})
	await(t, w, Event{Create, "file2"})
	do(t, os.Remove(path+"2"))
	await(t, w, Event{Remove, "file2"})
}

func TestNewDirectoriesAreWatchedWithWhatIsInThemAlready(t *testing.T) {
	directory := t.TempDir()
	do(t, os.MkdirAll(filepath.Join(directory, "old/deep"), 0o700))
	w := start(t, directory, true)
	do(t, os.WriteFile(filepath.Join(directory, "old/deep/file"), nil, 0o600))
	await(t, w, Event{Create, "old/deep/file"})
	do(t, os.MkdirAll(filepath.Join(directory, "new/a/b"), 0o700))
	do(t, os.WriteFile(filepath.Join(directory, "new/a/b/file"), nil, 0o600))
	await(t, w, Event{Create, "new/a/b/file"})
	do(t, os.Rename(filepath.Join(directory, "new"), filepath.Join(directory, "moved")))
	await(t, w, Event{Create, "moved"})
	do(t, os.WriteFile(filepath.Join(directory, "moved/a/b/file"), []byte("x"), 0o600))
	await(t, w, Event{Write, "moved/a/b/file"})
}

func TestTheWatchEndsWithItsDirectory(t *testing.T) {
	directory := filepath.Join(t.TempDir(), "gone")
	do(t, os.Mkdir(directory, 0o700))
	w := start(t, directory, true)
	do(t, os.Remove(directory))
	limit := time.After(60 * time.Second)
	for {
		select {
		case _, open := <-w.Events:
			if !open {
				return
			}
		case <-limit:
			t.Fatal("the watch goes on")
		}
	}
}

func TestOnlyDirectoriesAreWatched(t *testing.T) {
	account := &user.Account{Name: "me", UID: uint32(os.Geteuid())}
	if _, err := Start(account, "/no/such/place", false); fault.Of(err).Code != fault.FileMissing {
		t.Error(err)
	}
	if _, err := Start(account, "/etc/passwd", false); fault.Of(err).Code != fault.NotADirectory {
		t.Error(err)
	}
}
