package gofer

import (
	"errors"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/abi/linux"
	"gvisor.dev/gvisor/pkg/errors/linuxerr"
	"gvisor.dev/gvisor/pkg/fd"
	"gvisor.dev/gvisor/pkg/hostarch"
)

const page = hostarch.PageSize

// newBudget is one for so many pages and files.
func newBudget(pages, files int64) *diskBudget {
	b := &diskBudget{}
	b.Allow(pages*page, files)
	return b
}

func wantLeft(t *testing.T, b *diskBudget, pages, files int64) {
	t.Helper()
	if b.bytes != pages*page || b.files != files {
		t.Errorf("%d bytes and %d files are left, want %d and %d", b.bytes, b.files, pages*page, files)
	}
}

func wantTaken(t *testing.T, b *diskBudget, pages, files int64) {
	t.Helper()
	if err := b.take(nil, pages, files); err != nil {
		t.Errorf("take(%d, %d): %v", pages, files, err)
	}
}

func wantFull(t *testing.T, b *diskBudget, pages, files int64) {
	t.Helper()
	if err := b.take(nil, pages, files); err != linuxerr.ENOSPC {
		t.Errorf("take(%d, %d): %v, want ENOSPC", pages, files, err)
	}
}

func TestGrowthCountsPagesThatAreBegun(t *testing.T) {
	for _, c := range []struct {
		from, to uint64
		pages    int64
	}{
		{0, 0, 0}, {0, 1, 1}, {0, page, 1}, {0, page + 1, 2}, {1, page, 0}, {page, page + 1, 1}, {page - 1, 3 * page, 2},
		{page, 1, 0}, {0, 1 << 62, 1 << 50},
	} {
		if got := growth(c.from, c.to); got != c.pages {
			t.Errorf("growth(%d, %d) = %d, want %d", c.from, c.to, got, c.pages)
		}
	}
}

func TestWhatIsTakenIsLessThanTheLimit(t *testing.T) {
	b := newBudget(10, 2)
	wantTaken(t, b, 9, 1)
	wantFull(t, b, 2, 0)
	wantTaken(t, b, 1, 1)
	wantFull(t, b, 0, 1)
	wantFull(t, b, budgetMostPages+1, 0)
	wantTaken(t, b, 0, 0)
	wantTaken(t, b, -3, 0)
	wantLeft(t, b, 0, 0)
}

func TestWithoutALimitNothingIsCounted(t *testing.T) {
	b := &diskBudget{}
	wantTaken(t, b, 1<<50, 1<<50)
	b.Allow(page, 1)
	b.Lift()
	wantTaken(t, b, 1<<50, 1<<50)
	if b.used() != nil {
		t.Errorf("used() = %v", b.used())
	}
}

func TestOneOfTheLimitsMayBeMissing(t *testing.T) {
	b := &diskBudget{}
	b.Allow(2*page, 0)
	wantTaken(t, b, 2, 1<<30)
	wantFull(t, b, 1, 0)
	b = &diskBudget{}
	b.Allow(0, 1)
	wantTaken(t, b, 1<<30, 1)
	wantFull(t, b, 0, 1)
}

func TestAnotherLimitMovesWhatIsLeft(t *testing.T) {
	b := newBudget(10, 10)
	wantTaken(t, b, 4, 4)
	b.Allow(20*page, 5)
	wantLeft(t, b, 16, 1)
	b.Allow(2*page, 5)
	wantLeft(t, b, -2, 1)
	wantFull(t, b, 1, 0)
}

func TestWhatIsAddedDuringAMeasuringCountsBesideItsOutcome(t *testing.T) {
	b := newBudget(100, 100)
	b.Mark()
	wantTaken(t, b, 10, 3)
	b.Set(50*page, 50, nil)
	wantLeft(t, b, 40, 47)
	if !b.freed.Load() {
		t.Error("the next measuring may find more, but is not to be asked for")
	}
	b.Mark()
	b.Set(50*page, 50, nil)
	wantLeft(t, b, 50, 50)
	if b.freed.Load() {
		t.Error("nothing was freed")
	}
}

func TestADirectoryThatMovesDuringAMeasuringGivesNoMoreRoom(t *testing.T) {
	b := newBudget(10, 10)
	b.Mark()
	b.dirsMoved = true
	b.Set(50*page, 5, nil)
	wantLeft(t, b, 10, 5)
	b.Mark()
	b.Set(50*page, 50, nil)
	wantLeft(t, b, 50, 50)
}

func TestWhoeverNeedsRoomWaitsForTheMeasuringOfWhatWasFreed(t *testing.T) {
	b := newBudget(1, 1)
	wantFull(t, b, 2, 0)
	b.free()
	took := make(chan error)
	go func() { took <- b.take(nil, 2, 0) }()
	select {
	case err := <-took:
		t.Fatalf("it did not wait: %v", err)
	case <-time.After(20 * time.Millisecond):
	}
	b.Mark()
	b.Set(5*page, 5, nil)
	if err := <-took; err != nil {
		t.Error(err)
	}
	wantLeft(t, b, 3, 5)
	wantFull(t, b, 4, 0) // Nothing was freed since, so it need not wait.
}

func TestAMeasuringIsAskedForOnceHalfIsGone(t *testing.T) {
	number, err := unix.Eventfd(0, unix.EFD_NONBLOCK|unix.EFD_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	event := fd.New(number)
	b := newBudget(100, 100)
	b.Set(100*page, 100, event)
	asked := func() bool {
		var buffer [8]byte
		_, err := unix.Read(event.FD(), buffer[:])
		return err == nil
	}
	wantTaken(t, b, 50, 0)
	if asked() {
		t.Error("it was asked for too early")
	}
	wantTaken(t, b, 1, 0)
	if !asked() {
		t.Error("it was not asked for")
	}
	wantTaken(t, b, 1, 0)
	if asked() {
		t.Error("it was asked for twice")
	}
	b.Mark()
	b.free()
	b.settle() // It asks, and waits for a moment only.
	if !asked() {
		t.Error("what was freed is not to be measured")
	}
}

func TestABudgetGoesOnWithWhatWasOnTheDiskWhenItWasSaved(t *testing.T) {
	b := newBudget(10, 10)
	if b.used() != nil {
		t.Error("what is on the disk is known before it was measured")
	}
	b.Set(7*page, 8, nil)
	used := b.used()
	other := newBudget(20, 20)
	other.resume(used)
	wantLeft(t, other, 17, 18)
	other.resume([]int64{0, 0}) // It is known by now.
	wantLeft(t, other, 17, 18)
	unlimited := &diskBudget{}
	unlimited.resume(used)
	if unlimited.known {
		t.Error("a budget without limit goes on")
	}
}

func TestWithoutABudgetFilesAreMadeAgain(t *testing.T) {
	b := newBudget(1, 1)
	failed := errors.New("failed")
	err := b.Without(func() error {
		wantTaken(t, b, 5, 5)
		return failed
	})
	if err != failed {
		t.Errorf("Without() = %v", err)
	}
	wantFull(t, b, 2, 0)
}

func TestRoomOfTheHostIsWhatIsAboveItsShare(t *testing.T) {
	host := linux.Statfs{BlockSize: 4096, Blocks: 1000, BlocksAvailable: 300}
	for share, blocks := range map[int64]int64{0: 300, 10: 200, 29: 10, 30: 0, 90: 0} {
		if got := hostRoom(&host, share); got != blocks*4096 {
			t.Errorf("hostRoom(%d%%) = %d, want %d blocks", share, got, blocks)
		}
	}
	odd := linux.Statfs{BlockSize: 1 << 40, Blocks: 1 << 63, BlocksAvailable: 1 << 63}
	if got := hostRoom(&odd, 10); got <= 0 {
		t.Errorf("hostRoom of an odd file system = %d", got)
	}
}
