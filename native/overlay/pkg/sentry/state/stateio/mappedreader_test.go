package stateio

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/sentry/memmap"
)

// files has a pages file with so many bytes, which it returns, and an empty memory file.
func files(t *testing.T, length int) (pages, memory *os.File, content []byte) {
	t.Helper()
	var err error
	if pages, err = os.Create(filepath.Join(t.TempDir(), "pages")); err != nil {
		t.Fatal(err)
	}
	if memory, err = os.Create(filepath.Join(t.TempDir(), "memory")); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { pages.Close(); memory.Close() })
	for i := range length {
		content = append(content, byte(i%251)+1)
	}
	if _, err := pages.Write(content); err != nil {
		t.Fatal(err)
	}
	return pages, memory, content
}

func newReader(t *testing.T, pages, memory *os.File, follow bool) (*MappedReader, DestinationFile) {
	t.Helper()
	own, err := unix.Dup(int(pages.Fd()))
	if err != nil {
		t.Fatal(err)
	}
	r, ok := NewPagesFileReader(int32(own)).(*MappedReader)
	if !ok {
		t.Fatal("the file could not be mapped")
	}
	t.Cleanup(func() {
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	})
	if follow {
		if err := r.Follow(); err != nil {
			t.Fatal(err)
		}
	}
	dst, err := r.RegisterDestinationFD(int32(memory.Fd()), 1<<30, nil)
	if err != nil {
		t.Fatal(err)
	}
	return r, dst
}

// await returns when one read has ended.
func await(t *testing.T, r *MappedReader) Completion {
	t.Helper()
	for deadline := time.Now().Add(10 * time.Second); time.Now().Before(deadline); {
		cs, err := r.Wait(nil, 1)
		if err != nil {
			t.Fatal(err)
		}
		if len(cs) > 0 {
			return cs[0]
		}
	}
	t.Fatal("a read has not ended")
	return Completion{}
}

func wantBytes(t *testing.T, memory *os.File, at int64, want []byte) {
	t.Helper()
	got := make([]byte, len(want))
	if _, err := memory.ReadAt(got, at); err != nil || !bytes.Equal(got, want) {
		t.Errorf("at %d there are other bytes, or %v", at, err)
	}
}

func TestPagesAreWrittenToTheRangesOfTheMemory(t *testing.T) {
	pages, memory, content := files(t, 3*4096)
	r, dst := newReader(t, pages, memory, false)
	r.AddRead(1, 4096, dst, memmap.FileRange{Start: 0, End: 4096}, nil)
	if c := await(t, r); c.ID != 1 || c.N != 4096 || c.Err != nil {
		t.Errorf("%+v", c)
	}
	wantBytes(t, memory, 0, content[4096:8192])
	frs := []memmap.FileRange{{Start: 16384, End: 20480}, {Start: 8192, End: 12288}}
	r.AddReadv(2, 4096, 8192, dst, frs, nil)
	if c := await(t, r); c.ID != 2 || c.N != 8192 || c.Err != nil {
		t.Errorf("%+v", c)
	}
	wantBytes(t, memory, 16384, content[4096:8192])
	wantBytes(t, memory, 8192, content[8192:])
}

func TestAPlaceSaysInWhichFileAPageIs(t *testing.T) {
	pages, memory, content := files(t, 2*4096)
	earlier, _, _ := files(t, 0)
	other := bytes.Repeat([]byte{0xee}, 4096)
	if _, err := earlier.WriteAt(other, 4096); err != nil {
		t.Fatal(err)
	}
	r, dst := newReader(t, pages, memory, false)
	if err := r.AddBase(3, int(earlier.Fd())); err != nil {
		t.Fatal(err)
	}
	for i, read := range []struct {
		off   int64
		n     uint64
		bytes []byte
	}{
		{4096, 4096, content[4096:]},
		{3*FileSpan + 4096, 4096, other},
		{3 * FileSpan, 4096, make([]byte, 4096)},
		{3*FileSpan + 8192, 0, nil}, // Behind its end.
		{4 * FileSpan, 0, nil},      // There is no such file.
	} {
		r.AddRead(i, read.off, dst, memmap.FileRange{Start: 8192, End: 12288}, nil)
		if c := await(t, r); c.ID != i || c.N != read.n || (c.Err == nil) != (read.n > 0) {
			t.Errorf("at %#x: %+v", read.off, c)
		}
		wantBytes(t, memory, 8192, read.bytes)
	}
	for _, index := range []uint64{0, 3} {
		if err := r.AddBase(index, int(earlier.Fd())); err == nil {
			t.Errorf("a second file %d is taken", index)
		}
	}
	empty, _, _ := files(t, 0)
	if err := r.AddBase(5, int(empty.Fd())); err != nil {
		t.Error(err)
	}
	for place, holds := range map[uint64]bool{
		3 * FileSpan: true, 3*FileSpan + 4096: true, 3*FileSpan + 8192: false, 5 * FileSpan: false, 4 * FileSpan: false,
	} {
		if r.Holds(place, 4096) != holds {
			t.Errorf("Holds(%#x) = %v", place, !holds)
		}
	}
}

func TestAReadBehindTheEndOfTheFileSaysSo(t *testing.T) {
	pages, memory, content := files(t, 4096+100)
	r, dst := newReader(t, pages, memory, false)
	r.AddRead(1, 4096, dst, memmap.FileRange{Start: 0, End: 4096}, nil)
	if c := await(t, r); c.N != 100 || c.Err != io.EOF {
		t.Errorf("%+v", c)
	}
	wantBytes(t, memory, 0, content[4096:])
}

func TestAReadOfAFileThatGrowsWaitsUntilItIsThere(t *testing.T) {
	pages, memory, _ := files(t, 0)
	r, dst := newReader(t, pages, memory, true)
	r.AddRead(1, 4096, dst, memmap.FileRange{Start: 4096, End: 8192}, nil)
	if cs, err := r.Wait(nil, 1); len(cs) != 0 || err != nil {
		t.Fatalf("%v, %v", cs, err)
	}
	// What is there already does not wait for what is not.
	early := bytes.Repeat([]byte{7}, 4096)
	if _, err := pages.WriteAt(early, 0); err != nil {
		t.Fatal(err)
	}
	r.AddRead(2, 0, dst, memmap.FileRange{Start: 0, End: 4096}, nil)
	if c := await(t, r); c.ID != 2 || c.N != 4096 || c.Err != nil {
		t.Errorf("%+v", c)
	}
	late := bytes.Repeat([]byte{9}, 4096)
	if _, err := pages.WriteAt(late, 4096); err != nil {
		t.Fatal(err)
	}
	if c := await(t, r); c.ID != 1 || c.N != 4096 || c.Err != nil {
		t.Errorf("%+v", c)
	}
	wantBytes(t, memory, 0, early)
	wantBytes(t, memory, 4096, late)
}

func TestWhatOneHasSeenOfAFileThatGrowsNoOtherTakesBack(t *testing.T) {
	pages, memory, _ := files(t, 4096)
	r, _ := newReader(t, pages, memory, true)
	r.size.Store(2 * 4096) // Another has looked later, and found more.
	read := mappedRead{off: 4096, frs: []memmap.FileRange{{Start: 0, End: 8192}}}
	if r.isThere(read) || r.size.Load() != 2*4096 {
		t.Errorf("the size is %d", r.size.Load())
	}
}
