package pgalloc

import (
	"bytes"
	"maps"
	"math/rand"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/context"
	"gvisor.dev/gvisor/pkg/hostarch"
	"gvisor.dev/gvisor/pkg/sentry/memmap"
	pgallocpb "gvisor.dev/gvisor/pkg/sentry/pgalloc/pgalloc_metadata_go_proto"
	"gvisor.dev/gvisor/pkg/sentry/state/stateio"
	"gvisor.dev/gvisor/pkg/sentry/usage"
)

func place(index, page uint64) *pgallocpb.MemAcctRangeProto {
	return &pgallocpb.MemAcctRangeProto{Start: index*stateio.FileSpan + page*hostarch.PageSize, Kind: placeKind, KnownCommitted: true}
}

func TestPlacesAreInTheOrderOfMemoryAndRunsAreMerged(t *testing.T) {
	pb := &pgallocpb.MemoryFileMetadataProto{MemAcct: []*pgallocpb.MemAcctRangeProto{
		acct(4, 6, true), place(2, 7), acct(0, 1, true), acct(1, 2, true), acct(2, 4, false), place(0, 2), acct(6, 7, true),
	}}
	ranges, places := placesOf(pb)
	if want := []memmap.FileRange{pages(0, 2), pages(4, 7)}; !slices.Equal(ranges, want) {
		t.Errorf("ranges %v, want %v", ranges, want)
	}
	if want := []uint64{2*stateio.FileSpan + 7*hostarch.PageSize, 0}; !slices.Equal(places, want) {
		t.Errorf("places %v, want %v", places, want)
	}
	if got, want := used(pb, 3), []uint64{0, 2 * hostarch.PageSize, 0}; !slices.Equal(got, want) {
		t.Errorf("used %v, want %v", got, want)
	}
}

func TestFilesAreKnownByTheirInodesAnd(t *testing.T) {
	s := &saved{
		files: map[uint64]Base{
			0: {ino: 10, size: 2 * hostarch.PageSize},
			3: {ino: 13, size: 100 * hostarch.PageSize},
			4: {ino: 14, size: hostarch.PageSize},
		},
		ranges: []memmap.FileRange{pages(0, 2), pages(2, 3)},
		places: []uint64{0, 3 * stateio.FileSpan},
	}
	pb := &pgallocpb.MemoryFileMetadataProto{MemAcct: []*pgallocpb.MemAcctRangeProto{acct(0, 8, true)}}
	given := []Base{{ino: 99}, {ino: 13}, {ino: 10}, {ino: 14}}
	// Nothing lies in 14 any more.
	if got, want := newEarlier(s, given, pb).index, map[uint64]uint64{0: 3, 3: 2}; !maps.Equal(got, want) {
		t.Errorf("index %v, want %v", got, want)
	}
	if got, ok := newEarlier(s, given, pb).place(3*stateio.FileSpan + 5); !ok || got != 2*stateio.FileSpan+5 {
		t.Errorf("place() = %#x, %v", got, ok)
	}
	if _, ok := newEarlier(nil, given, pb).place(0); ok {
		t.Error("what was never saved has a place")
	}
}

func TestNoMoreFilesAreReferredToThanAReaderTakes(t *testing.T) {
	s := &saved{files: make(map[uint64]Base)}
	var given []Base
	var all []*pgallocpb.MemAcctRangeProto
	for i := range uint64(basesMost + 5) {
		s.files[i] = Base{ino: i, size: hostarch.PageSize}
		given = append(given, Base{ino: i})
		// The first of them have the most.
		from := 100 * i
		s.ranges = append(s.ranges, pages(from, from+50-i))
		s.places = append(s.places, i*stateio.FileSpan)
		all = append(all, acct(from, from+50, true))
	}
	e := newEarlier(s, given, &pgallocpb.MemoryFileMetadataProto{MemAcct: all})
	for i := range uint64(basesMost + 5) {
		if _, ok := e.index[i]; ok != (i < basesMost) {
			t.Errorf("file %d is referred to: %v", i, ok)
		}
	}
}

// machine is a MemoryFile with the bytes that it must have.
type machine struct {
	f       *MemoryFile
	content map[uint64][]byte // By page; what is missing is zeros.
	file    *os.File
}

const machinePages = 512

func newMemoryFile(t *testing.T) *MemoryFile {
	t.Helper()
	file, err := os.Create(filepath.Join(t.TempDir(), "memory"))
	if err != nil {
		t.Fatal(err)
	}
	f, err := NewMemoryFile(file, MemoryFileOpts{DisableMemoryAccounting: true})
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func (m *machine) write(t *testing.T, page uint64, bs []byte) {
	t.Helper()
	seq, err := m.f.MapInternal(pages(page, page+1), hostarch.Write)
	if err != nil {
		t.Fatal(err)
	}
	copy(seq.Head().ToSlice(), bs)
	m.content[page] = bs
}

func (m *machine) check(t *testing.T, page uint64) {
	t.Helper()
	seq, err := m.f.MapInternal(pages(page, page+1), hostarch.Read)
	if err != nil {
		t.Fatal(err)
	}
	want := m.content[page]
	if want == nil {
		want = make([]byte, hostarch.PageSize)
	}
	if !bytes.Equal(seq.Head().ToSlice(), want) {
		t.Fatalf("page %d has other bytes", page)
	}
}

func (m *machine) save(t *testing.T, own *os.File, bases []*os.File, held bool) (metadata []byte, used []uint64) {
	t.Helper()
	dup := func(file *os.File) Base {
		fd, err := unix.Dup(int(file.Fd()))
		if err != nil {
			t.Fatal(err)
		}
		base, err := NewBase(fd)
		if err != nil {
			t.Fatal(err)
		}
		return base
	}
	var given []Base
	for _, file := range bases {
		given = append(given, dup(file))
	}
	done := make(chan error, 1)
	fd, err := unix.Dup(int(own.Fd()))
	if err != nil {
		t.Fatal(err)
	}
	apfs, err := StartAsyncPagesFileSave(stateio.NewPagesFileFDWriterDefault(int32(fd)), func(err error) { done <- err })
	if err != nil {
		t.Fatal(err)
	}
	s := m.f.NewLateSave(apfs, given, false)
	if held {
		s.Hold(pages(0, machinePages/2))
	}
	rest, err := s.SaveOthers()
	if err == nil && held {
		err = s.SaveHeld(rest)
	} else if err == nil {
		err = s.Compact()
	}
	var w bytes.Buffer
	if err == nil {
		err = s.WriteMetadata(&w)
	}
	apfs.MemoryFilesDone()
	if written := <-done; err == nil {
		err = written
	}
	s.Release()
	if err != nil {
		t.Fatal(err)
	}
	used = s.Used()
	if err := s.Refer(dup(own)); err != nil {
		t.Fatal(err)
	}
	for _, base := range given {
		base.Close()
	}
	return w.Bytes(), used
}

func restored(t *testing.T, metadata []byte, own *os.File, bases map[uint64]*os.File, content map[uint64][]byte) *machine {
	t.Helper()
	fd, err := unix.Dup(int(own.Fd()))
	if err != nil {
		t.Fatal(err)
	}
	reader := stateio.NewPagesFileReader(int32(fd)).(*stateio.MappedReader)
	files := make(map[uint64]Base)
	keep := func(index uint64, file *os.File) {
		fd, err := unix.Dup(int(file.Fd()))
		if err != nil {
			t.Fatal(err)
		}
		if files[index], err = NewBase(fd); err != nil {
			t.Fatal(err)
		}
	}
	keep(0, own)
	for index, file := range bases {
		if err := reader.AddBase(index, int(file.Fd())); err != nil {
			t.Fatal(err)
		}
		keep(index, file)
	}
	ReadAheadAfter, ReadTouched = -1, true
	apfl, err := StartAsyncPagesFileLoad(reader, func(error) {}, nil)
	if err != nil {
		t.Fatal(err)
	}
	m := &machine{f: newMemoryFile(t), content: content}
	m.f.KeepFiles(files)
	if err := m.f.LoadFrom(context.Background(), bytes.NewReader(metadata), &LoadOpts{PagesFile: apfl}); err != nil {
		t.Fatal(err)
	}
	apfl.MemoryFilesDone()
	return m
}

func TestMemoryIsTheSameThroughAnyNumberOfCheckpoints(t *testing.T) {
	usage.Init()
	random := rand.New(rand.NewSource(7))
	page := func() []byte {
		bs := make([]byte, hostarch.PageSize)
		random.Read(bs)
		return bs
	}
	m := &machine{f: newMemoryFile(t), content: make(map[uint64][]byte)}
	fr, err := m.f.Allocate(machinePages*hostarch.PageSize, AllocOpts{Kind: usage.Anonymous})
	if err != nil || fr.Start != 0 {
		t.Fatalf("%v, %v", fr, err)
	}
	for i := range uint64(machinePages / 2) {
		m.write(t, i, page())
	}
	var earlier []*os.File // What the next checkpoint may refer to.
	for round := range 30 {
		own, err := os.Create(filepath.Join(t.TempDir(), "pages"))
		if err != nil {
			t.Fatal(err)
		}
		changed := make(map[uint64]bool)
		count := random.Intn(20)
		if round%7 == 6 {
			count = machinePages
		}
		for range count {
			i := uint64(random.Intn(machinePages))
			switch random.Intn(4) {
			case 0:
				m.check(t, i)
			case 1:
				m.write(t, i, make([]byte, hostarch.PageSize))
			default:
				m.write(t, i, page())
				changed[i] = true
			}
		}
		metadata, used := m.save(t, own, earlier, round%3 == 1)
		info, err := own.Stat()
		if err != nil {
			t.Fatal(err)
		}
		if most := int64(machinePages / 4 * hostarch.PageSize); round%3 == 1 && info.Size() > most+int64(len(changed)*hostarch.PageSize) {
			t.Errorf("round %d wrote %d pages, of which %d were changed", round, info.Size()/hostarch.PageSize, len(changed))
		}
		bases := make(map[uint64]*os.File)
		kept := []*os.File{own}
		for i, bytes := range used {
			if bytes > 0 {
				bases[uint64(i+1)] = earlier[i]
				kept = append(kept, earlier[i])
			}
		}
		if len(kept) > basesMost+1 {
			t.Fatalf("a checkpoint refers to %d files", len(kept))
		}
		for i, bytes := range used {
			if info, err := earlier[i].Stat(); err != nil || round%3 != 1 && bytes > 0 && bytes*2 < uint64(info.Size()) {
				t.Errorf("round %d refers to %d bytes of a file of %d", round, bytes, info.Size())
			}
		}
		if info.Size() == 0 {
			// A file without pages cannot be mapped, and need not be.
			kept = kept[1:]
		}
		earlier = kept
		random.Shuffle(len(earlier), func(a, b int) { earlier[a], earlier[b] = earlier[b], earlier[a] })
		if round%4 == 3 {
			// It goes on in the same process, where pages are still unread in the files of before.
			continue
		}
		m = restored(t, metadata, own, bases, m.content)
		if round%10 == 9 {
			for i := range uint64(machinePages) {
				m.check(t, i)
			}
		}
	}
	for i := range uint64(machinePages) {
		m.check(t, i)
	}
}
