package pgalloc

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"gvisor.dev/gvisor/pkg/hostarch"
	"gvisor.dev/gvisor/pkg/sentry/memmap"
	pgallocpb "gvisor.dev/gvisor/pkg/sentry/pgalloc/pgalloc_metadata_go_proto"
)

func pages(start, end uint64) memmap.FileRange {
	return memmap.FileRange{Start: start * hostarch.PageSize, End: end * hostarch.PageSize}
}

func acct(start, end uint64, committed bool) *pgallocpb.MemAcctRangeProto {
	fr := pages(start, end)
	return &pgallocpb.MemAcctRangeProto{Start: fr.Start, End: fr.End, Kind: 3, MemCgId: 7, KnownCommitted: committed}
}

func TestTheUnionOfRangesIsInOrderAndWithoutOverlaps(t *testing.T) {
	given := []memmap.FileRange{pages(8, 9), pages(0, 2), pages(2, 3), pages(5, 7), pages(5, 6), pages(1, 2)}
	before := slices.Clone(given)
	if got, want := unionOf(given), []memmap.FileRange{pages(0, 3), pages(5, 7), pages(8, 9)}; !slices.Equal(got, want) {
		t.Errorf("unionOf() = %v, want %v", got, want)
	}
	if !slices.Equal(given, before) {
		t.Error("what was given is changed")
	}
	if got := unionOf(nil); len(got) != 0 {
		t.Errorf("unionOf(nil) = %v", got)
	}
}

type part struct {
	fr memmap.FileRange
	i  int
}

func TestPartsOfARangeLieInOneOfOthersOrInNone(t *testing.T) {
	ranges := []memmap.FileRange{pages(1, 3), pages(3, 4), pages(6, 8), pages(20, 30)}
	for name, c := range map[string]struct {
		whole *pgallocpb.MemAcctRangeProto
		want  []part
	}{
		"over all": {acct(0, 10, true), []part{
			{pages(0, 1), -1}, {pages(1, 3), 0}, {pages(3, 4), 1}, {pages(4, 6), -1}, {pages(6, 8), 2}, {pages(8, 10), -1},
		}},
		"from the middle": {acct(2, 7, false), []part{{pages(2, 3), 0}, {pages(3, 4), 1}, {pages(4, 6), -1}, {pages(6, 7), 2}}},
		"between":         {acct(4, 6, false), []part{{pages(4, 6), -1}}},
		"within":          {acct(22, 23, false), []part{{pages(22, 23), 3}}},
		"behind all":      {acct(30, 31, false), []part{{pages(30, 31), -1}}},
	} {
		var got []part
		forEachPart(c.whole, ranges, func(one *pgallocpb.MemAcctRangeProto, i int) {
			got = append(got, part{memmap.FileRange{Start: one.Start, End: one.End}, i})
			if one.Kind != 3 || one.MemCgId != 7 || one.KnownCommitted != c.whole.KnownCommitted {
				t.Errorf("%s: a part is of another kind: %v", name, one)
			}
		})
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}

func TestHeldPagesAreTakenOutOfTheMetadata(t *testing.T) {
	s := &LateSave{
		pb: &pgallocpb.MemoryFileMetadataProto{
			MemAcct: []*pgallocpb.MemAcctRangeProto{acct(0, 4, true), acct(4, 8, false)},
		},
		held: []memmap.FileRange{pages(6, 7), pages(1, 2), pages(3, 5)},
	}
	held, others := s.parts()
	ranges := func(parts []*pgallocpb.MemAcctRangeProto) (all []memmap.FileRange) {
		for _, one := range parts {
			all = append(all, memmap.FileRange{Start: one.Start, End: one.End})
		}
		return all
	}
	if want := []memmap.FileRange{pages(1, 2), pages(3, 4), pages(4, 5), pages(6, 7)}; !slices.Equal(ranges(held), want) {
		t.Errorf("held %v, want %v", ranges(held), want)
	}
	if want := []memmap.FileRange{pages(0, 1), pages(2, 3), pages(5, 6), pages(7, 8)}; !slices.Equal(ranges(others), want) {
		t.Errorf("others %v, want %v", ranges(others), want)
	}
	if len(s.pb.MemAcct) != 0 {
		t.Errorf("left in the metadata: %v", s.pb.MemAcct)
	}
	none, _ := (&LateSave{pb: &pgallocpb.MemoryFileMetadataProto{}}).parts()
	if none == nil {
		t.Error("nothing that is held is nil, which SaveHeld takes for all")
	}
}

func TestPagesLieInTheFilesWhereTheMetadataSays(t *testing.T) {
	s := &LateSave{pb: &pgallocpb.MemoryFileMetadataProto{}}
	s.refer(acct(10, 12, true), 0)
	s.pb.MemAcct = append(s.pb.MemAcct, acct(0, 5, false))
	s.refer(acct(12, 14, true), 2*hostarch.PageSize)
	if len(s.pb.MemAcct) != 3 {
		t.Fatalf("%d ranges, although each follows the one before", len(s.pb.MemAcct))
	}
	s.refer(acct(5, 6, true), 7*hostarch.PageSize)
	s.next = 8 * hostarch.PageSize
	got := s.written()
	if got.size != 8*hostarch.PageSize {
		t.Errorf("the file has %d bytes", got.size)
	}
	want := map[memmap.FileRange]uint64{
		pages(0, 5): nowhere, pages(5, 6): 7 * hostarch.PageSize, pages(10, 12): 0, pages(12, 14): 2 * hostarch.PageSize,
	}
	for i, fr := range got.ranges {
		if offset, ok := want[fr]; !ok || offset != got.offsets[i] {
			t.Errorf("%v lies at %d, want %d", fr, got.offsets[i], offset)
		}
		if i > 0 && fr.Start < got.ranges[i-1].Start {
			t.Error("the ranges are not in order")
		}
	}
	if len(got.ranges) != len(want) {
		t.Errorf("%d ranges", len(got.ranges))
	}
}

func TestPagesThatTheFileHasAreMarked(t *testing.T) {
	file, err := os.Create(filepath.Join(t.TempDir(), "memory"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	const size = 64
	if err := file.Truncate(size * hostarch.PageSize); err != nil {
		t.Fatal(err)
	}
	for _, at := range []int64{17, 40} {
		if _, err := file.WriteAt([]byte{1}, at*hostarch.PageSize); err != nil {
			t.Fatal(err)
		}
	}
	f := &MemoryFile{file: file}
	for _, fr := range []memmap.FileRange{pages(0, size), pages(16, 18), pages(17, 41), pages(41, size), pages(18, 40)} {
		present := make([]byte, fr.Length()/hostarch.PageSize)
		if err := f.markAllocated(fr, present); err != nil {
			t.Fatal(err)
		}
		first := fr.Start / hostarch.PageSize
		for i, marked := range present {
			has := first+uint64(i) == 17 || first+uint64(i) == 40
			if has && marked == 0 {
				t.Errorf("of %v page %d is not marked", fr, first+uint64(i))
			}
		}
	}
	// A file system may have bigger blocks than pages, but not as big as this.
	present := make([]byte, size)
	if err := f.markAllocated(pages(0, size), present); err != nil || !slices.Contains(present, 0) {
		t.Errorf("all is marked, or %v", err)
	}
}
