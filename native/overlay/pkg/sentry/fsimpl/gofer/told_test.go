package gofer

import (
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/abi/linux"
	"gvisor.dev/gvisor/pkg/fd"
)

// ofTheHost is what the host says of its disk, which no guest should be told.
func ofTheHost() linux.Statfs {
	return linux.Statfs{
		BlockSize: 512, FragmentSize: 512, Blocks: 777, BlocksFree: 776, BlocksAvailable: 775, Files: 774, FilesFree: 773,
	}
}

// wantSize checks that a disk of so many pages is told, of which so many are left.
func wantSize(t *testing.T, told linux.Statfs, size, left uint64) {
	t.Helper()
	want := linux.Statfs{
		BlockSize: page, FragmentSize: page, Blocks: size, BlocksFree: left, BlocksAvailable: left, Files: size, FilesFree: left,
	}
	if told != want {
		t.Errorf("told %+v, want %+v", told, want)
	}
}

func TestTheGuestIsToldOfItsLimitNotOfTheHost(t *testing.T) {
	b := newBudget(100, 50)
	wantTaken(t, b, 30, 10)
	told := linux.Statfs{BlockSize: 4096, Blocks: 1 << 20, BlocksFree: 1 << 19, BlocksAvailable: 1 << 19}
	b.tell(&told)
	if told.Blocks != 100 || told.BlocksFree != 70 || told.BlocksAvailable != 70 || told.Files != 50 || told.FilesFree != 40 {
		t.Errorf("told %+v", told)
	}
	full := linux.Statfs{BlockSize: 4096, Blocks: 1000, BlocksAvailable: 120}
	b.KeepFree(10)
	b.tell(&full)
	if full.BlocksFree != 70 || full.BlocksAvailable != 20 {
		t.Errorf("on a full host told %+v", full)
	}
	b.Allow(page, 1) // Less than there is.
	b.tell(&told)
	if told.BlocksFree != 0 || told.FilesFree != 0 {
		t.Errorf("above the limit told %+v", told)
	}
}

func TestADiskWithoutALimitHasAMadeUpSize(t *testing.T) {
	b := &diskBudget{}
	told := ofTheHost()
	b.tell(&told)
	wantSize(t, told, endlessTold/page, endlessTold/page)
	b.Allow(0, 50) // Only files are limited.
	told = ofTheHost()
	b.tell(&told)
	if told.Blocks != endlessTold/page || told.BlocksAvailable != endlessTold/page || told.Files != 50 || told.FilesFree != 50 {
		t.Errorf("told %+v", told)
	}
}

func toldOf(r *volumeRooms, path string) linux.Statfs {
	told := ofTheHost()
	r.settle(path)
	r.tell(path, &told)
	return told
}

func TestAMountThatOthersChangeHasTheSizeOfItsQuota(t *testing.T) {
	r := &volumeRooms{}
	r.Set(map[string]Room{"/data": {2 * page, 6 * page, 10 * page}, "/full": {0, -page, 5 * page}}, nil)
	wantSize(t, toldOf(r, "/data"), 10, 6)
	wantSize(t, toldOf(r, "/full"), 5, 0)
	wantRoom(t, r, "/data", 1)
	wantSize(t, toldOf(r, "/data"), 10, 5)
}

func TestAMountWithoutAQuotaHasAMadeUpSize(t *testing.T) {
	r := &volumeRooms{}
	wantSize(t, toldOf(r, "/data"), endlessTold/page, endlessTold/page)
	r.Measure([]string{"/data"})
	r.Set(map[string]Room{"/data": {budgetEndless, budgetEndless, 0}}, nil)
	wantSize(t, toldOf(r, "/data"), endlessTold/page, endlessTold/page)
}

func TestAMountIsNotToldOfBeforeItsQuotaIsKnown(t *testing.T) {
	r := &volumeRooms{}
	r.Limit([]string{"/data"})
	told := make(chan linux.Statfs)
	go func() { told <- toldOf(r, "/data") }()
	time.Sleep(2 * budgetTold)
	r.Set(map[string]Room{"/data": {5 * page, 5 * page, 10 * page}}, nil)
	wantSize(t, <-told, 10, 5)
}

func TestWhatWasGivenUpIsMeasuredBeforeItIsTold(t *testing.T) {
	number, err := unix.Eventfd(0, unix.EFD_NONBLOCK|unix.EFD_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	event := fd.New(number)
	defer event.Close()
	r := &volumeRooms{}
	r.Set(map[string]Room{"/data": {page, page, 10 * page}}, event)
	wantSize(t, toldOf(r, "/data"), 10, 1)
	r.freed.Add(1)
	renewed, _ := r.remeasured("/data")
	var buffer [8]byte
	if _, err := unix.Read(event.FD(), buffer[:]); err != nil {
		t.Errorf("it was not asked: %v", err)
	}
	r.Measure([]string{"/data"})
	r.Set(map[string]Room{"/data": {4 * page, 4 * page, 10 * page}}, nil)
	<-renewed
	if again, _ := r.remeasured("/data"); again != nil {
		t.Error("it would be measured once more")
	}
	wantSize(t, toldOf(r, "/data"), 10, 4)
}
