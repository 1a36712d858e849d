package system

import (
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
	"time"
)

func put(t *testing.T, root, name, text string) {
	t.Helper()
	path := filepath.Join(root, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

func TestTheBiggestProcessIsFoundAndTheAgentNever(t *testing.T) {
	root := t.TempDir()
	put(t, root, "/proc/1/statm", "9999 9999 0\n")
	put(t, root, "/proc/7/statm", "900 30 0\n")
	put(t, root, "/proc/8/statm", "40 40 0\n")
	put(t, root, "/proc/9/statm", "nonsense\n")
	guard := &MemoryGuard{Root: root}
	page := int64(os.Getpagesize())
	if found := guard.biggest(); !slices.Equal(found, []held{{8, 40 * page}, {7, 30 * page}}) {
		t.Errorf("found %v", found)
	}
}

func TestALimitThatWasSetCountsInsteadOfTheKernelsTotal(t *testing.T) {
	info := &syscall.Sysinfo_t{Totalram: 1024, Freeram: 1000, Unit: 1 << 10}
	guard := &MemoryGuard{Root: t.TempDir()}
	if used, total := guard.within(info); used != 24<<10 || total != 1<<20 {
		t.Errorf("used %d of %d", used, total)
	}
	guard.SetLimit(512 << 10)
	if used, total := guard.within(info); used != 24<<10 || total != 512<<10 {
		t.Errorf("used %d of %d", used, total)
	}
}

func TestASmallProcessIsNotKilledForWhatADeadOneStillHolds(t *testing.T) {
	now := time.Now()
	guard := &MemoryGuard{killedBytes: 200 << 20, killedAt: now}
	if !guard.spares(22<<20, now.Add(time.Second)) {
		t.Error("a small one is killed while the big one's memory is still counted")
	}
	if guard.spares(150<<20, now) {
		t.Error("one as big is spared")
	}
	if guard.spares(22<<20, now.Add(sparing)) {
		t.Error("a small one is spared for ever")
	}
}

func TestItLooksMoreOftenTheLessIsLeft(t *testing.T) {
	if pause(-1) != lookOften || pause(1<<40) != lookSeldom {
		t.Error("the pause has no bounds")
	}
	if half := pause(fillRate / 2); half != 500*time.Millisecond {
		t.Errorf("half a second's memory is left, and it pauses %s", half)
	}
	if reserve(64<<20) > 22<<20 || reserve(16<<30) != 1<<30 {
		t.Error("the reserve is not in proportion")
	}
}

func TestANewLimitIsLookedAtAtOnce(t *testing.T) {
	guard := NewMemoryGuard(nil)
	guard.SetLimit(1 << 40)
	guard.SetLimit(1 << 41) // it waits for nobody
	go guard.Run()
	guard.SetLimit(1 << 40)
	for deadline := time.Now().Add(10 * time.Second); len(guard.limited) > 0; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the guard sleeps on")
		}
	}
}

func TestForTheHostOnlyAProcessThatIsWorthItIsKilled(t *testing.T) {
	root := t.TempDir()
	put(t, root, "/proc/8/statm", "40 40 0\n")
	guard := &MemoryGuard{Root: root}
	if _, _, killed := guard.KillForHost(); killed || !guard.killedAt.IsZero() {
		t.Error("a small one counts as killed")
	}
	put(t, root, "/proc/9/statm", "40000 40000 0\n")
	put(t, root, "/proc/9/comm", "hog\n")
	if name, held, _ := guard.KillForHost(); name != "hog" || held != 40000*int64(os.Getpagesize()) {
		t.Errorf("killed %s, which held %d", name, held)
	}
}
