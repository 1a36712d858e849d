package gofer

import (
	"math"
	"slices"
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
	use := r.Use([]string{path})[path]
	left := pages*page - use.Added
	r.Set(map[string]Room{path: {left, left, use.Added == 0, 0}}, nil)
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

func TestWhatIsAddedToAMountWhileItIsMeasuredCountsToo(t *testing.T) {
	r := &volumeRooms{}
	tell(r, "/data", 10)
	wantRoom(t, r, "/data", 2)
	r.Mark([]string{"/data"})
	wantRoom(t, r, "/data", 3)
	// The measuring has seen them or not.
	tell(r, "/data", 5)
	wantRoom(t, r, "/data", 2)
	taken := make(chan error)
	go func() { taken <- r.take("/data", 3) }()
	time.Sleep(20 * time.Millisecond)
	r.Mark([]string{"/data"})
	tell(r, "/data", 3)
	if err := <-taken; err != nil {
		t.Fatal(err)
	}
	wantNoRoom(t, r, "/data", 1)
}

func TestAFileThatGrowsWhileItIsMeasuredCounts(t *testing.T) {
	r, b := &volumeRooms{}, newBudget(10, 10)
	tell(r, "/data", 10)
	grownThere, _ := r.takeGrowth("/data", 4)
	grown, _ := b.takeGrowth(nil, 4, 0)
	r.Mark([]string{"/data"})
	b.Mark()
	// It was not that large yet when it was seen.
	tell(r, "/data", 10)
	b.Set(10*page, 10, nil)
	if left := r.rooms["/data"].bytes; left != 6*page {
		t.Errorf("%d bytes are left in the mount, want %d", left, 6*page)
	}
	wantLeft(t, b, 6, 10)
	grownThere()
	grown()
	r.Mark([]string{"/data"})
	b.Mark()
	tell(r, "/data", 6)
	b.Set(6*page, 10, nil)
	if left := r.rooms["/data"].bytes; left != 6*page {
		t.Errorf("%d bytes are left in the mount, want %d", left, 6*page)
	}
	wantLeft(t, b, 6, 10)
}

func TestAMarkIsOfTheMountsThatAreNamed(t *testing.T) {
	r := &volumeRooms{}
	tell(r, "/data", 10)
	tell(r, "/other", 10)
	r.Mark([]string{"/other"})
	wantRoom(t, r, "/other", 3)
	r.Mark([]string{"/data"})
	wantRoom(t, r, "/other", 1)
	tell(r, "/other", 5)
	if left := r.rooms["/other"].bytes; left != page {
		t.Errorf("%d bytes are left, want %d", left, page)
	}
}

func TestWhatIsAddedAfterAMeasuringIsTakenOffWhatIsTold(t *testing.T) {
	r := &volumeRooms{}
	tell(r, "/data", 10)
	r.Mark([]string{"/data"})
	wantRoom(t, r, "/data", 2)
	use := r.Use([]string{"/data"})["/data"]
	if use.Added != 2*page || use.Bytes != 8*page {
		t.Errorf("%+v, want that 2 pages were added and 8 are left", use)
	}
	wantRoom(t, r, "/data", 3)
	r.Set(map[string]Room{"/data": {8 * page, 8 * page, true, 0}}, nil)
	if left := r.rooms["/data"].bytes; left != 5*page {
		t.Errorf("%d bytes are left, want %d", left, 5*page)
	}
}

func TestWhatWasAddedBeyondWhatIsToldIsOwed(t *testing.T) {
	r := &volumeRooms{}
	tell(r, "/data", 10)
	r.Mark([]string{"/data"})
	r.Use([]string{"/data"})
	wantRoom(t, r, "/data", 3)
	r.Set(map[string]Room{"/data": {page, page, true, 0}}, nil)
	if use := r.Use([]string{"/data"})["/data"]; use.Bytes != -2*page {
		t.Errorf("%+v, want that two pages are owed", use)
	}
}

func TestARoomIsWithinBoundsWhateverIsTold(t *testing.T) {
	r := &volumeRooms{}
	tell(r, "/data", 10)
	r.Mark([]string{"/data"})
	r.Use([]string{"/data"})
	wantRoom(t, r, "/data", 2)
	least, most := int64(math.MinInt64), int64(math.MaxInt64)
	r.Set(map[string]Room{"/data": {least, least, true, 0}, "/other": {most, most, true, 0}}, nil)
	if here, there := r.rooms["/data"].bytes, r.rooms["/other"].bytes; here != -budgetEndless || there != budgetEndless {
		t.Errorf("%d and %d bytes are left", here, there)
	}
	wantNoRoom(t, r, "/data", 1)
}

func TestAMountWithoutALimitIsCountedWhileItIsMeasured(t *testing.T) {
	r := &volumeRooms{}
	wantRoom(t, r, "/data", 1)
	r.Mark([]string{"/data"})
	wantRoom(t, r, "/data", 1<<30)
	if use := r.Use([]string{"/data"})["/data"]; use.Added != page<<30 {
		t.Errorf("%d bytes were added, want %d", use.Added, int64(page<<30))
	}
	r.Set(map[string]Room{"/data": {budgetEndless, budgetEndless, true, 0}}, nil)
	if r.limited.Load() {
		t.Error("it is limited, though there is room without an end")
	}
	r.Mark([]string{"/data"})
	tell(r, "/data", 2)
	wantRoom(t, r, "/data", 2)
	wantNoRoom(t, r, "/data", 1)
}

func namedAt(path string, mode uint32, size uint64) *dentry {
	fs := &filesystem{opts: filesystemOptions{interop: InteropModeShared}}
	fs.iopts.UniqueID.Path = path
	return &dentry{inode: &inode{fs: fs, mode: atomicbitops.FromUint32(mode), size: atomicbitops.FromUint64(size)}}
}

func TestWhatMovesWhileItIsMeasuredIsSaid(t *testing.T) {
	Rooms = volumeRooms{}
	defer func() { Rooms = volumeRooms{} }()
	paths := []string{"/data"}
	tell(&Rooms, "/data", 10)
	Rooms.Mark(paths)
	file := Budget.moving(namedAt("/data", linux.S_IFREG, 3*page))
	if use := Rooms.Use(paths)["/data"]; use.Added != 4*page || use.Moved {
		t.Errorf("%+v, want what the file and its name take", use)
	}
	directory := Budget.moving(namedAt("/data", linux.S_IFDIR, 0))
	if use := Rooms.Use(paths)["/data"]; use.Added != 0 || !use.Moved {
		t.Errorf("%+v, want that a directory has moved", use)
	}
	Rooms.Mark(paths)
	if use := Rooms.Use(paths)["/data"]; use.Added != 4*page || !use.Moved {
		t.Errorf("%+v, want that a file and a directory are being moved", use)
	}
	// Nothing can be missed any more of what moves now.
	defer Budget.moving(namedAt("/data", linux.S_IFREG, 9*page))()
	Rooms.Set(map[string]Room{"/data": {5 * page, 5 * page, true, 0}}, nil)
	if left := Rooms.rooms["/data"].bytes; left != 5*page {
		t.Errorf("%d bytes are left, want %d", left, 5*page)
	}
	file()
	directory()
	Rooms.Mark(paths)
	if use := Rooms.Use(paths)["/data"]; use.Added != 10*page || use.Moved {
		t.Errorf("%+v, want only what is still under way", use)
	}
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

func TestOfManyFilesWithoutANameTheLargestAreToldOnce(t *testing.T) {
	files := []NamelessFile{{1, 7, page}, {1, 8, 2 * page}, {1, 7, page}, {2, 7, page}}
	most, rest := largest(slices.Clone(files))
	if want := []NamelessFile{{1, 8, 2 * page}, {1, 7, page}, {2, 7, page}}; !slices.Equal(most, want) || rest != 0 {
		t.Errorf("%v and %d bytes, want %v", most, rest, want)
	}
	for number := range uint64(namelessMost) {
		files = append(files, NamelessFile{3, number, 4 * page})
	}
	if most, rest = largest(files); len(most) != namelessMost || most[0].Device != 3 || rest != 4*page {
		t.Errorf("%d files, the first %v, and %d bytes", len(most), most[0], rest)
	}
	// As large as files can be, they are no more than what counts as endless.
	files = nil
	for number := range uint64(3 * namelessMost) {
		files = append(files, NamelessFile{3, number, budgetMostPages * page})
	}
	if _, rest = largest(files); rest != budgetEndless {
		t.Errorf("%d bytes, want %d", rest, int64(budgetEndless))
	}
}

func TestARoomIsThatOfTheMountWhereverItIs(t *testing.T) {
	r := &volumeRooms{}
	r.Resolve("/link/data", "/real/data")
	r.Resolve("/other", "/other")
	r.Limit([]string{"/link/data", "/other"})
	tell(r, "/link/data", 2)
	tell(r, "/other", 1)
	wantRoom(t, r, "/real/data", 1)
	r.Mark([]string{"/link/data"})
	wantRoom(t, r, "/real/data", 1)
	if use := r.Use([]string{"/link/data"})["/link/data"]; use.Added != page {
		t.Errorf("%d bytes were added, want %d", use.Added, page)
	}
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
	r.Mark([]string{"/data"})
	tell(r, "/data", 1)
	if err := <-taken; err != nil {
		t.Fatal(err)
	}
}

func TestWhatOthersHaveBeenGivenIsAskedFor(t *testing.T) {
	r := &volumeRooms{}
	r.Set(map[string]Room{"/data": {0, 5 * page, true, 0}}, nil)
	wantNoRoom(t, r, "/data", 6)
	taken := make(chan error)
	go func() { taken <- r.take("/data", 5) }()
	time.Sleep(20 * time.Millisecond)
	r.Mark([]string{"/data"})
	tell(r, "/data", 5)
	if err := <-taken; err != nil {
		t.Fatal(err)
	}
	wantNoRoom(t, r, "/data", 1)
}

func TestAMountThatWasFullForASecondIsMeasuredAgain(t *testing.T) {
	r := &volumeRooms{}
	tell(r, "/data", 0)
	r.rooms["/data"].markedAt = time.Now().Add(-2 * roomFresh)
	taken := make(chan error)
	go func() { taken <- r.take("/data", 1) }()
	time.Sleep(20 * time.Millisecond)
	r.Mark([]string{"/data"})
	tell(r, "/data", 0)
	if err := <-taken; err != linuxerr.ENOSPC {
		t.Fatalf("%v, want ENOSPC", err)
	}
}

func TestWhoeverTakesOverIsAskedToo(t *testing.T) {
	event := func() *fd.FD {
		number, err := unix.Eventfd(0, unix.EFD_NONBLOCK|unix.EFD_CLOEXEC)
		if err != nil {
			t.Fatal(err)
		}
		return fd.New(number)
	}
	later := event()
	defer later.Close()
	r := &volumeRooms{}
	r.Set(map[string]Room{"/data": {10 * page, 10 * page, true, 0}}, event())
	r.Mark([]string{"/data"})
	wantRoom(t, r, "/data", 6) // asks the one before
	r.Use([]string{"/data"})
	r.Set(map[string]Room{"/data": {4 * page, 4 * page, true, 0}}, later)
	wantRoom(t, r, "/data", 3)
	var buffer [8]byte
	if _, err := unix.Read(later.FD(), buffer[:]); err != nil {
		t.Errorf("it was not asked: %v", err)
	}
}

func TestWhatWasWaitedUntilItWasToldDoesNotCount(t *testing.T) {
	r := &volumeRooms{}
	r.Limit([]string{"/data"})
	taken := make(chan error)
	go func() { taken <- r.take("/data", 5) }()
	time.Sleep(budgetPatience + 100*time.Millisecond)
	r.Set(map[string]Room{"/data": {page, 5 * page, true, 0}}, nil)
	time.Sleep(20 * time.Millisecond)
	r.Mark([]string{"/data"})
	tell(r, "/data", 5)
	if err := <-taken; err != nil {
		t.Fatal(err)
	}
}

func TestRoomsAskBeforeAllIsUsed(t *testing.T) {
	r := &volumeRooms{}
	number, err := unix.Eventfd(0, unix.EFD_NONBLOCK|unix.EFD_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	event := fd.New(number)
	defer event.Close()
	wantAsked := func(want bool) {
		t.Helper()
		var buffer [8]byte
		if _, err := unix.Read(event.FD(), buffer[:]); (err == nil) != want {
			t.Errorf("asked: %v, want %v", err == nil, want)
		}
	}
	r.Set(map[string]Room{"/data": {10 * page, 10 * page, true, 0}}, event)
	wantRoom(t, r, "/data", 5)
	wantAsked(false)
	wantRoom(t, r, "/data", 1)
	wantAsked(true)
	wantRoom(t, r, "/data", 1)
	wantAsked(false) // once until it is marked
	r.Mark([]string{"/data"})
	tell(r, "/data", 1)
	wantRoom(t, r, "/data", 1)
	wantAsked(true)
}
