package system

import (
	"fmt"
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

func TestWhileThereIsRoomItSleepsUntilTheKernelWakesIt(t *testing.T) {
	guard := NewMemoryGuard(nil)
	guard.Root = t.TempDir()
	used, _, _ := guard.use()
	guard.SetLimit(used + used/5 + 300<<20) // too little is left for a long pause
	<-guard.limited                         // the first look knows it
	marks, wake := make(chan int64), make(chan waited)
	guard.await = func(mark, apart int64) waited {
		if apart != reserve(guard.limit.Load())/2 {
			t.Errorf("%d bytes do not count", apart)
		}
		marks <- mark
		return <-wake
	}
	go guard.Run()
	for n := range 3 {
		if mark := <-marks; mark < used/2 || mark > guard.limit.Load() {
			t.Errorf("it waits for %d of %d", mark, guard.limit.Load())
		}
		select {
		case <-marks:
			t.Error("it looks although nothing woke it")
		case <-time.After(50 * time.Millisecond):
		}
		wake <- []waited{grown, sparse, grown}[n]
	}
	<-marks
	guard.SetLimit(guard.limit.Load()) // wakes it as well
	<-marks
	wake <- cannot // the one that is given up
	wake <- cannot
	select {
	case <-marks:
		t.Error("it asks a kernel that cannot tell")
	case <-time.After(200 * time.Millisecond):
	}
	guard.SetLimit(guard.limit.Load())
	for deadline := time.Now().Add(10 * time.Second); len(guard.limited) > 0; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("it does not look any more")
		}
	}
}

func TestProcessesCountOnceMuchIsUsed(t *testing.T) {
	guard := &MemoryGuard{Root: t.TempDir()}
	for _, pid := range []string{"1", "7", "self"} {
		put(t, guard.Root, "/proc/"+pid+"/statm", "40 40 0\n")
	}
	const mib = 1 << 20
	if mark := guard.mark(100*mib, 512*mib, 364*mib); mark != 416*mib-2*perProcess {
		t.Errorf("%d of 512 MiB, of which 48 are kept", mark)
	}
	for n := range 1000 {
		put(t, guard.Root, fmt.Sprintf("/proc/%d/statm", n), "40 40 0\n")
	}
	if mark := guard.mark(100*mib, 512*mib, 364*mib); mark != 256*mib {
		t.Errorf("%d, although processes do not count up to the half", mark)
	}
	if mark := guard.mark(10*mib, 96*mib, 54*mib); mark != 32*mib {
		t.Errorf("%d of 96 MiB, of which 32 are kept", mark)
	}
	if mark := guard.mark(300*mib, 512*mib, 90*mib); mark != 345*mib {
		t.Errorf("%d, and what is left is known", mark)
	}
	if mark := guard.mark(380*mib, 512*mib, 20*mib); mark != 390*mib {
		t.Errorf("%d of the last stretch", mark)
	}
	if mark := guard.mark(399*mib, 512*mib, mib); mark != 403*mib {
		t.Errorf("%d at its end", mark)
	}
}

func TestAKernelThatCannotTellIsAskedOnce(t *testing.T) {
	if awaitUse(1, 1) != cannot {
		t.Error("the host's kernel says that it waits")
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
