package gofer

import (
	"encoding/binary"
	"math"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/abi/linux"
	"gvisor.dev/gvisor/pkg/atomicbitops"
	"gvisor.dev/gvisor/pkg/errors/linuxerr"
	"gvisor.dev/gvisor/pkg/fd"
)

func wantRoom(t *testing.T, r *volumeRooms, path string, pages int64) {
	t.Helper()
	if err := r.take(path, pages); err != nil {
		t.Errorf("take(%q, %d): %v", path, pages, err)
	}
}

func wantNoRoom(t *testing.T, r *volumeRooms, path string, pages int64) {
	t.Helper()
	if err := r.take(path, pages); err != linuxerr.ENOSPC {
		t.Errorf("take(%q, %d): %v, want ENOSPC", path, pages, err)
	}
}

// tell gives all that is left to this guest, after a measuring that found so many pages free.
func tell(r *volumeRooms, path string, pages int64) {
	r.Measure([]string{path})
	r.Set(map[string]Room{path: {pages * page, pages * page, 0}}, nil)
}

// wantRest checks how many pages may still be added to /data.
func wantRest(t *testing.T, r *volumeRooms, pages int64) {
	t.Helper()
	if left := r.rooms["/data"].bytes; left != pages*page {
		t.Errorf("%d bytes may be added, want %d", left, pages*page)
	}
}

// newEvent returns an eventfd, and a check of what was asked for with it.
func newEvent(t *testing.T) (event *fd.FD, wantAsked func(bytes uint64)) {
	number, err := unix.Eventfd(0, unix.EFD_NONBLOCK|unix.EFD_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	event = fd.New(number)
	return event, func(bytes uint64) {
		t.Helper()
		var buffer [8]byte
		unix.Read(event.FD(), buffer[:])
		if asked := binary.LittleEndian.Uint64(buffer[:]); asked != bytes {
			t.Errorf("%d bytes were asked for, want %d", asked, bytes)
		}
	}
}

func TestWithoutALimitAnythingMayBeAdded(t *testing.T) {
	r := &volumeRooms{}
	wantRoom(t, r, "/data", 1<<30)
}

func TestEachMountHasARoomOfItsOwn(t *testing.T) {
	r := &volumeRooms{}
	tell(r, "/data", 10)
	tell(r, "/other", 1)
	wantRoom(t, r, "/data", 9)
	wantNoRoom(t, r, "/data", 2)
	wantNoRoom(t, r, "/data", 1<<60)
	wantRoom(t, r, "/data", 1)
	wantRoom(t, r, "/other", 1)
	wantNoRoom(t, r, "/other", 1)
}

func TestAWriteWaitsUntilItsRoomIsTold(t *testing.T) {
	r := &volumeRooms{}
	r.Limit([]string{"/data"})
	wantRoom(t, r, "/elsewhere", 1<<30)
	taken := make(chan error)
	go func() { taken <- r.take("/data", 1) }()
	select {
	case err := <-taken:
		t.Fatalf("it did not wait: %v", err)
	case <-time.After(20 * time.Millisecond):
	}
	tell(r, "/other", 1)
	tell(r, "/data", 1)
	if err := <-taken; err != nil {
		t.Fatal(err)
	}
	wantNoRoom(t, r, "/data", 1)
}

func TestTheDiskKnowsWhatMovesWhileItIsMeasured(t *testing.T) {
	b := newBudget(10, 10)
	one := namedAt("/", linux.S_IFREG, 2*page)
	one.inode.fs.opts.interop = InteropModeExclusive
	moved := b.moving(one)
	b.Mark()
	b.Set(10*page, 10, nil)
	wantLeft(t, b, 7, 9)
	moved()
	b.Mark()
	b.Set(10*page, 10, nil)
	wantLeft(t, b, 10, 10)
}

func TestARoomIsThatOfTheMountWhereverItIs(t *testing.T) {
	r := &volumeRooms{}
	r.Resolve("/link/data", "/real/data")
	r.Resolve("/other", "/other")
	r.Limit([]string{"/link/data", "/other"})
	tell(r, "/link/data", 2)
	tell(r, "/other", 1)
	wantRoom(t, r, "/real/data", 1)
	if use := r.Measure([]string{"/link/data"})["/link/data"]; use.Rest != page {
		t.Errorf("%d bytes may be added, want %d", use.Rest, page)
	}
	wantRoom(t, r, "/real/data", 1)
	wantNoRoom(t, r, "/other", 2)
}

func TestAMountOnTopOfAnotherHasTheRoom(t *testing.T) {
	r := &volumeRooms{}
	r.Resolve("/real/data", "/real/data")
	r.Resolve("/link/data", "/real/data")
	r.Limit([]string{"/real/data", "/link/data"})
	tell(r, "/link/data", 2)
	tell(r, "/real/data", 10)
	wantRoom(t, r, "/real/data", 2)
	wantNoRoom(t, r, "/real/data", 1)
}

func TestWhatWasGivenUpIsWaitedFor(t *testing.T) {
	r := &volumeRooms{}
	tell(r, "/data", 0)
	wantNoRoom(t, r, "/data", 1)
	r.freed.Add(1)
	taken := make(chan error)
	go func() { taken <- r.take("/data", 1) }()
	time.Sleep(20 * time.Millisecond)
	tell(r, "/data", 1)
	if err := <-taken; err != nil {
		t.Fatal(err)
	}
}

func TestWhatOthersHaveBeenGivenIsAskedFor(t *testing.T) {
	r := &volumeRooms{}
	r.Measure([]string{"/data"})
	r.Set(map[string]Room{"/data": {0, 5 * page, 0}}, nil)
	wantNoRoom(t, r, "/data", 6)
	taken := make(chan error)
	go func() { taken <- r.take("/data", 5) }()
	time.Sleep(20 * time.Millisecond)
	tell(r, "/data", 5)
	if err := <-taken; err != nil {
		t.Fatal(err)
	}
	wantNoRoom(t, r, "/data", 1)
}

func TestAMountThatWasFullForASecondIsMeasuredAgain(t *testing.T) {
	r := &volumeRooms{}
	tell(r, "/data", 0)
	r.rooms["/data"].measuredAt = time.Now().Add(-2 * roomFresh)
	taken := make(chan error)
	go func() { taken <- r.take("/data", 1) }()
	time.Sleep(20 * time.Millisecond)
	tell(r, "/data", 0)
	if err := <-taken; err != linuxerr.ENOSPC {
		t.Fatalf("%v, want ENOSPC", err)
	}
}

func TestWhatWasWaitedUntilItWasToldDoesNotCount(t *testing.T) {
	r := &volumeRooms{}
	r.Limit([]string{"/data"})
	taken := make(chan error)
	go func() { taken <- r.take("/data", 5) }()
	time.Sleep(budgetPatience + 100*time.Millisecond)
	r.Set(map[string]Room{"/data": {page, 5 * page, 0}}, nil)
	time.Sleep(20 * time.Millisecond)
	tell(r, "/data", 5)
	if err := <-taken; err != nil {
		t.Fatal(err)
	}
}

func TestNoMoreThanAChunkIsAddedWhateverWasAddedBefore(t *testing.T) {
	r := &volumeRooms{}
	tell(r, "/data", 10)
	wantRoom(t, r, "/data", 7)
	tell(r, "/data", 10)
	wantRest(t, r, 10)
	r.Set(map[string]Room{"/data": {4 * page, 0, 0}}, nil)
	wantRest(t, r, 4)
	if left := r.rooms["/data"].leftBytes; left != 10*page {
		t.Errorf("%d bytes are left, want what the measuring found", left)
	}
}

func TestAFileThatGrowsWhileItIsMeasuredTakesItsPartOfTheNextChunk(t *testing.T) {
	r, b := &volumeRooms{}, newBudget(10, 10)
	tell(r, "/data", 10)
	grownThere, _ := r.takeGrowth("/data", 4)
	grown, _ := b.takeGrowth(nil, 4, 0)
	b.Mark()
	// It was not that large yet when it was seen.
	if use := r.Measure([]string{"/data"})["/data"]; use.Rest != 10*page {
		t.Errorf("%+v, want that 10 pages may be added", use)
	}
	tell(r, "/data", 10)
	b.Set(10*page, 10, nil)
	wantRest(t, r, 6)
	wantLeft(t, b, 6, 10)
	grownThere()
	grown()
	b.Mark()
	tell(r, "/data", 6)
	b.Set(6*page, 10, nil)
	wantRest(t, r, 6)
	wantLeft(t, b, 6, 10)
}

func TestARoomIsWithinBoundsWhateverIsTold(t *testing.T) {
	r := &volumeRooms{}
	least, most := int64(math.MinInt64), int64(math.MaxInt64)
	r.Set(map[string]Room{"/data": {least, least, least}, "/other": {most, most, most}}, nil)
	if here, there := r.rooms["/data"].bytes, r.rooms["/other"].bytes; here != 0 || there != budgetEndless {
		t.Errorf("%d and %d bytes may be added", here, there)
	}
	wantNoRoom(t, r, "/data", 1)
}

func TestAMountWithoutALimitIsFirstLimitedWhenItIsTold(t *testing.T) {
	r := &volumeRooms{}
	if use := r.Measure([]string{"/data"})["/data"]; use.Rest != budgetEndless {
		t.Errorf("%+v, want no limit", use)
	}
	wantRoom(t, r, "/data", 1<<30)
	r.Set(map[string]Room{"/data": {budgetEndless, budgetEndless, 0}}, nil)
	if r.limited.Load() {
		t.Error("it is limited, though there is room without an end")
	}
	tell(r, "/data", 2)
	wantRoom(t, r, "/data", 2)
	wantNoRoom(t, r, "/data", 1)
}

func namedAt(path string, mode uint32, size uint64) *dentry {
	fs := &filesystem{opts: filesystemOptions{interop: InteropModeShared}}
	fs.iopts.UniqueID.Path = path
	return &dentry{inode: &inode{fs: fs, mode: atomicbitops.FromUint32(mode), size: atomicbitops.FromUint64(size)}}
}

func TestWhoMovesFilesWhileTheyAreMeasuredGetsNoMoreForThem(t *testing.T) {
	Rooms = volumeRooms{}
	defer func() { Rooms = volumeRooms{} }()
	told := map[string]Room{"/data": {10 * page, 10 * page, 0}}
	set := func(rest, missed int64) {
		t.Helper()
		if got := Rooms.Set(told, nil); got != missed {
			t.Errorf("%d bytes may have been missed, want %d", got, missed)
		}
		wantRest(t, &Rooms, rest)
	}
	tell(&Rooms, "/data", 2)
	Budget.moving(namedAt("/data", linux.S_IFREG, 9*page))() // nothing is measured
	Rooms.Measure([]string{"/data"})
	file := Budget.moving(namedAt("/data", linux.S_IFREG, 3*page))
	set(6, 4*page)
	Rooms.Measure([]string{"/data"}) // it is still being moved
	directory := Budget.moving(namedAt("/data", linux.S_IFDIR, 0))
	wantRoom(t, &Rooms, "/data", 3)
	set(3, budgetEndless) // what it had
	file()
	Rooms.Measure([]string{"/data"})
	set(3, budgetEndless)
	directory()
	Rooms.Measure([]string{"/data"})
	set(10, 0)
	set(10, 0)
}

func TestWhoRemovesOpenFilesWhileTheyAreMeasuredGetsNoMoreForThem(t *testing.T) {
	one := &room{told: true, bytes: 2 * page, measured: true, namelessBytes: page}
	if missed := one.set(Room{Bytes: 10 * page}, 4*page); missed != 3*page || one.bytes != 7*page {
		t.Errorf("%d bytes may have been missed, %d may be added", missed, one.bytes)
	}
}

func TestARoomAsksBeforeAllIsUsedAndForWhatAWriteWaitsFor(t *testing.T) {
	r := &volumeRooms{}
	event, wantAsked := newEvent(t)
	r.Set(map[string]Room{"/data": {10 * page, 20 * page, 0}}, event)
	wantRoom(t, r, "/data", 5)
	wantAsked(0)
	wantRoom(t, r, "/data", 1)
	wantAsked(1)
	wantRoom(t, r, "/data", 1)
	wantAsked(0) // once until it is measured or told
	taken := make(chan error)
	go func() { taken <- r.take("/data", 12) }()
	time.Sleep(20 * time.Millisecond)
	wantAsked(12 * page)
	if use := r.Measure([]string{"/data"})["/data"]; use.Needed != 12*page || use.Rest != 3*page {
		t.Errorf("%+v, want that 12 pages are needed and 3 may be added", use)
	}
	r.Set(map[string]Room{"/data": {12 * page, 12 * page, 0}}, nil)
	if err := <-taken; err != nil {
		t.Fatal(err)
	}
	if use := r.Measure([]string{"/data"})["/data"]; use != (RoomUse{}) {
		t.Errorf("%+v, want nothing", use)
	}
	// Another supervisor is asked, too.
	later, wantAskedLater := newEvent(t)
	defer later.Close()
	r.Set(map[string]Room{"/data": {4 * page, 4 * page, 0}}, later)
	wantRoom(t, r, "/data", 3)
	wantAskedLater(1)
}
