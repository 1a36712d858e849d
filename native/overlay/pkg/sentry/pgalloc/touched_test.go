package pgalloc

import (
	"slices"
	"testing"
	"time"

	"gvisor.dev/gvisor/pkg/hostarch"
	"gvisor.dev/gvisor/pkg/sentry/memmap"
	pgallocpb "gvisor.dev/gvisor/pkg/sentry/pgalloc/pgalloc_metadata_go_proto"
)

func rangesOf(t *testing.T, all []*pgallocpb.MemAcctRangeProto) (ranges []memmap.FileRange) {
	t.Helper()
	for _, one := range all {
		if one.Kind != touchedKind || one.KnownCommitted {
			t.Errorf("%v could be taken for memory", one)
		}
		ranges = append(ranges, memmap.FileRange{Start: one.Start, End: one.End})
	}
	return ranges
}

func TestWhatIsTouchedIsKeptInItsOrderAndOnce(t *testing.T) {
	var first touched
	first.begin(&pgallocpb.MemoryFileMetadataProto{MemAcct: []*pgallocpb.MemAcctRangeProto{acct(0, 9, true), place(0, 3)}})
	first.add([]memmap.FileRange{pages(5, 6), pages(6, 7), pages(1, 3)})
	first.add([]memmap.FileRange{pages(2, 4), pages(5, 6)})
	want := []memmap.FileRange{pages(5, 7), pages(1, 4)}
	all := first.export()
	if got := rangesOf(t, all); !slices.Equal(got, want) {
		t.Fatalf("%v, want %v", got, want)
	}

	var second touched
	if ahead := second.begin(&pgallocpb.MemoryFileMetadataProto{MemAcct: all}); !slices.Equal(ahead, want) {
		t.Errorf("after the next restore %v, want %v", ahead, want)
	}
	second.add([]memmap.FileRange{pages(8, 9)})
	if got := rangesOf(t, second.export()); !slices.Equal(got, append(want, pages(8, 9))) {
		t.Errorf("after it %v", got)
	}
}

func TestOnlyWhatIsTouchedSoonAfterARestoreCounts(t *testing.T) {
	var some touched
	some.add([]memmap.FileRange{pages(0, 1)}) // It was booted, not restored.
	some.begin(&pgallocpb.MemoryFileMetadataProto{})
	some.until = time.Now().Add(-time.Second)
	some.add([]memmap.FileRange{pages(1, 2)})
	if all := some.export(); len(all) != 0 {
		t.Errorf("%v", all)
	}
}

func TestNoMoreIsReadAheadThanIsWorthwhile(t *testing.T) {
	var some touched
	some.begin(&pgallocpb.MemoryFileMetadataProto{})
	most := uint64(touchedMost / hostarch.PageSize)
	some.add([]memmap.FileRange{pages(0, most-1), pages(most, most+2), pages(most+2, most+3), pages(most+3, most+4)})
	if got, want := rangesOf(t, some.export()), []memmap.FileRange{pages(0, most-1), pages(most+2, most+3)}; !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

func TestAReferenceForReadingAheadIsNotSaved(t *testing.T) {
	for changing, left := range map[bool]bool{false: true, true: false} {
		f := &MemoryFile{readingAhead: hostarch.PageSize}
		locked := make(chan struct{})
		go func() {
			f.lockSettled(changing)
			close(locked)
		}()
		waits := func(why string) {
			t.Helper()
			select {
			case <-locked:
				t.Fatal(why)
			case <-time.After(20 * time.Millisecond):
			}
		}
		waits("a page is held for being read ahead")
		// That is what used it last.
		f.mu.Lock()
		f.haveWaste = true
		f.mu.Unlock()
		f.endReadAhead(hostarch.PageSize)
		if left {
			waits("a page is waste")
			f.mu.Lock()
			f.haveWaste = false
			f.mu.Unlock()
		}
		<-locked
		if f.awaitingReads != 0 {
			t.Error("nothing is read ahead any more")
		}
	}
}
