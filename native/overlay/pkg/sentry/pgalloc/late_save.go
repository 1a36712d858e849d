package pgalloc

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"fmt"
	"io"
	"math"
	"runtime"
	"slices"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/protobuf/proto"
	"gvisor.dev/gvisor/pkg/hostarch"
	"gvisor.dev/gvisor/pkg/sentry/memmap"
	pgallocpb "gvisor.dev/gvisor/pkg/sentry/pgalloc/pgalloc_metadata_go_proto"
)

// LateSave saves a MemoryFile in two parts: pages that are held, which nobody changes meanwhile, and all others.
type LateSave struct {
	amfs *asyncMemoryFileSave
	pb   *pgallocpb.MemoryFileMetadataProto
	held []memmap.FileRange

	// first is what of held is written before the rest.
	first []memmap.FileRange
}

// NewLateSave notes what f has now; its pages will be written to pf. What nobody uses any more must be released if the
// metadata is to be written.
func (f *MemoryFile) NewLateSave(pf *AsyncPagesFileSave) *LateSave {
	f.mu.Lock()
	defer f.mu.Unlock()
	return &LateSave{amfs: &asyncMemoryFileSave{f: f, pf: pf}, pb: f.exportMetadataProto()}
}

// LoadAhead returns when all pages are loaded that a restore has left in its file. Other than for AwaitLoadAll, f may
// be changed meanwhile: nobody waits for a page that may become waste.
func (f *MemoryFile) LoadAhead() error {
	for {
		amfl := f.asyncPageLoad.Load()
		if amfl == nil {
			return nil
		}
		if err := amfl.pf.err(); err != nil {
			return err
		}
		amfl.pf.lfStatus.Notify(aplReadAhead)
		time.Sleep(2 * time.Millisecond)
	}
}

// AwaitRelease returns when what nobody uses any more is released.
//
// Preconditions: f is not being changed.
func (f *MemoryFile) AwaitRelease() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for f.haveWaste {
		f.mu.Unlock()
		runtime.Gosched()
		f.mu.Lock()
	}
}

// Hold takes a reference on pages until Release. The caller assures that nobody writes to pages with more than one.
func (s *LateSave) Hold(fr memmap.FileRange) {
	s.amfs.f.IncRef(fr, 0)
	s.held = append(s.held, fr)
}

// HoldFirst does what Hold does for pages that are written before those of Hold.
func (s *LateSave) HoldFirst(fr memmap.FileRange) {
	s.Hold(fr)
	s.first = append(s.first, fr)
}

// SaveOthers writes all pages that are not held, and returns when they are written, with what is left to be saved.
//
// Preconditions: The MemoryFile is not being changed.
func (s *LateSave) SaveOthers() ([]*pgallocpb.MemAcctRangeProto, error) {
	late, others := s.parts()
	for _, part := range others {
		if err := s.save(part); err != nil {
			return nil, err
		}
	}
	return late, s.amfs.pf.flush()
}

// SaveHeld queues pages that are held for writing: late, or with nil all.
func (s *LateSave) SaveHeld(late []*pgallocpb.MemAcctRangeProto) error {
	if late == nil {
		late, _ = s.parts()
	}
	first := unionOf(s.first)
	var ordered, rest []*pgallocpb.MemAcctRangeProto
	for _, acct := range late {
		forEachPart(acct, first, func(part *pgallocpb.MemAcctRangeProto, i int) {
			if i >= 0 {
				ordered = append(ordered, part)
			} else {
				rest = append(rest, part)
			}
		})
	}
	for _, part := range append(ordered, rest...) {
		if err := s.save(part); err != nil {
			return err
		}
	}
	return nil
}

// parts takes what is allocated out of the metadata, and returns what of it is held and what is not.
func (s *LateSave) parts() (held, others []*pgallocpb.MemAcctRangeProto) {
	all := s.pb.MemAcct
	held = []*pgallocpb.MemAcctRangeProto{} // For SaveHeld nil means something else.
	s.pb.MemAcct = make([]*pgallocpb.MemAcctRangeProto, 0, len(all))
	union := unionOf(s.held)
	for _, acct := range all {
		forEachPart(acct, union, func(part *pgallocpb.MemAcctRangeProto, i int) {
			if i >= 0 {
				held = append(held, part)
			} else {
				others = append(others, part)
			}
		})
	}
	return held, others
}

// SaveSince saves the MemoryFile to pf, behind the pages that s has written to the same file and that nobody has
// changed since: these are not written again. It releases s.
//
// Preconditions: The MemoryFile is not being changed. All pages of s are written.
func (s *LateSave) SaveSince(pf *AsyncPagesFileSave, w io.Writer) error {
	ahead := s.written()
	s.Release()
	s.amfs.f.AwaitRelease()
	now := s.amfs.f.NewLateSave(pf)
	all := now.pb.MemAcct
	now.pb.MemAcct = nil
	var changed []*pgallocpb.MemAcctRangeProto
	var same []writtenPart
	for _, acct := range all {
		forEachPart(acct, ahead.ranges, func(part *pgallocpb.MemAcctRangeProto, i int) {
			switch {
			case i < 0:
				changed = append(changed, part)
			case ahead.offsets[i] == zeros:
				part.KnownCommitted = false
				now.pb.MemAcct = append(now.pb.MemAcct, part)
			default:
				part.KnownCommitted = true
				same = append(same, writtenPart{part, ahead.offsets[i] + part.Start - ahead.ranges[i].Start})
			}
		})
	}
	slices.SortFunc(same, func(a, b writtenPart) int { return cmp.Compare(a.offset, b.offset) })
	at := uint64(0)
	for _, one := range same {
		now.skip(one.offset - at)
		now.pb.MemAcct = append(now.pb.MemAcct, one.part)
		at = one.offset + one.part.End - one.part.Start
	}
	now.skip(ahead.size - at)
	for _, part := range changed {
		if err := now.save(part); err != nil {
			return err
		}
	}
	return now.WriteMetadata(w)
}

// zeros is the offset of pages that are nowhere, since they have nothing but zeros.
const zeros = math.MaxUint64

type writtenPart struct {
	part   *pgallocpb.MemAcctRangeProto
	offset uint64
}

// written is where pages are in the pages file; ranges are in order.
type written struct {
	ranges  []memmap.FileRange
	offsets []uint64
	size    uint64
}

func (s *LateSave) written() written {
	var found []writtenPart
	size := uint64(0)
	for _, part := range s.pb.MemAcct {
		if part.KnownCommitted {
			found = append(found, writtenPart{part, size})
			size += part.End - part.Start
		} else {
			found = append(found, writtenPart{part, zeros})
		}
	}
	slices.SortFunc(found, func(a, b writtenPart) int { return cmp.Compare(a.part.Start, b.part.Start) })
	w := written{size: size}
	for _, one := range found {
		w.ranges = append(w.ranges, memmap.FileRange{Start: one.part.Start, End: one.part.End})
		w.offsets = append(w.offsets, one.offset)
	}
	return w
}

// skippedKind is the kind of a range that is no memory, but room in the pages file.
const skippedKind = math.MaxUint32

func (s *LateSave) skip(length uint64) {
	if length > 0 {
		s.pb.MemAcct = append(s.pb.MemAcct, &pgallocpb.MemAcctRangeProto{End: length, Kind: skippedKind, KnownCommitted: true})
	}
}

// WriteMetadata writes the metadata of what was saved to w.
func (s *LateSave) WriteMetadata(w io.Writer) error {
	data, err := proto.Marshal(s.pb)
	if err != nil {
		return fmt.Errorf("failed to marshal metadata: %w", err)
	}
	var length [8]byte
	binary.LittleEndian.PutUint64(length[:], uint64(len(data)))
	if _, err := w.Write(length[:]); err != nil {
		return fmt.Errorf("failed to write metadata length: %w", err)
	}
	if _, err := w.Write(data); err != nil {
		return fmt.Errorf("failed to write metadata: %w", err)
	}
	return nil
}

// Release gives the held pages back.
func (s *LateSave) Release() {
	for _, fr := range s.held {
		s.amfs.f.DecRef(fr)
	}
	s.held = nil
}

// save notes what of acct has other bytes than zeros, and queues it for writing.
func (s *LateSave) save(acct *pgallocpb.MemAcctRangeProto) error {
	var failed error
	zeroPage := make([]byte, hostarch.PageSize)
	s.amfs.f.forEachChunk(memmap.FileRange{Start: acct.Start, End: acct.End}, func(chunk *chunkInfo, fr memmap.FileRange) bool {
		pages := chunk.sliceAt(fr)
		count := len(pages) / hostarch.PageSize
		present := make([]byte, count)
		if acct.KnownCommitted {
			for i := range present {
				present[i] = 1
			}
		} else if failed = s.amfs.f.markAllocated(fr, present); failed != nil {
			// Reading a page that is not there would make it.
			return false
		}
		has := func(i int) bool {
			page := pages[i*hostarch.PageSize : (i+1)*hostarch.PageSize]
			return present[i]&1 != 0 && !bytes.Equal(page, zeroPage)
		}
		for i := 0; i < count; {
			from, committed := i, has(i)
			for i++; i < count && has(i) == committed; i++ {
			}
			part := partOf(acct, fr.Start+uint64(from)*hostarch.PageSize, fr.Start+uint64(i)*hostarch.PageSize)
			part.KnownCommitted = committed
			s.add(part)
		}
		return true
	})
	return failed
}

// markAllocated marks the pages of fr that the file has: also those that the host has swapped out, which mincore does not
// tell of.
func (f *MemoryFile) markAllocated(fr memmap.FileRange, present []byte) error {
	for at := int64(fr.Start); at < int64(fr.End); {
		data, err := unix.Seek(int(f.file.Fd()), at, unix.SEEK_DATA)
		if err == unix.ENXIO {
			return nil
		}
		if err != nil {
			return fmt.Errorf("looking for data in the memory file: %w", err)
		}
		hole, err := unix.Seek(int(f.file.Fd()), data, unix.SEEK_HOLE)
		if err != nil {
			return fmt.Errorf("looking for a hole in the memory file: %w", err)
		}
		for page := data / hostarch.PageSize * hostarch.PageSize; page < min(hole, int64(fr.End)); page += hostarch.PageSize {
			present[(page-int64(fr.Start))/hostarch.PageSize] = 1
		}
		at = hole
	}
	return nil
}

// add makes part the next of the metadata, whose order is that of the pages file.
func (s *LateSave) add(part *pgallocpb.MemAcctRangeProto) {
	s.pb.MemAcct = append(s.pb.MemAcct, part)
	if !part.KnownCommitted {
		return
	}
	pf := s.amfs.pf
	pf.mu.Lock()
	pf.unsaved.PushBack(apsRange{amfs: s.amfs, FileRange: memmap.FileRange{Start: part.Start, End: part.End}})
	pf.saveOff += part.End - part.Start
	pf.mu.Unlock()
	pf.stStatus.Notify(apsSTPending)
}

// flush returns when all that was queued is written.
func (apfs *AsyncPagesFileSave) flush() error {
	apfs.stStatus.Notify(apsSTFlush)
	select {
	case <-apfs.flushed:
		return nil
	case <-apfs.ended:
		return apfs.err
	}
}

func partOf(acct *pgallocpb.MemAcctRangeProto, start, end uint64) *pgallocpb.MemAcctRangeProto {
	return &pgallocpb.MemAcctRangeProto{
		Start:          start,
		End:            end,
		Kind:           acct.Kind,
		MemCgId:        acct.MemCgId,
		KnownCommitted: acct.KnownCommitted,
	}
}

// forEachPart calls fn with the parts of acct that lie in one of ranges, which are in order, and its index, and with
// those that lie in none, and -1.
func forEachPart(acct *pgallocpb.MemAcctRangeProto, ranges []memmap.FileRange, fn func(part *pgallocpb.MemAcctRangeProto, i int)) {
	i, _ := slices.BinarySearchFunc(ranges, acct.Start, func(fr memmap.FileRange, at uint64) int {
		if fr.End <= at {
			return -1
		}
		return 1
	})
	for start := acct.Start; start < acct.End; {
		switch {
		case i == len(ranges) || ranges[i].Start >= acct.End:
			fn(partOf(acct, start, acct.End), -1)
			return
		case ranges[i].Start > start:
			fn(partOf(acct, start, ranges[i].Start), -1)
			start = ranges[i].Start
		default:
			end := min(acct.End, ranges[i].End)
			fn(partOf(acct, start, end), i)
			start = end
			i++
		}
	}
}

// unionOf returns the pages of all ranges in order.
func unionOf(ranges []memmap.FileRange) []memmap.FileRange {
	sorted := slices.Clone(ranges)
	slices.SortFunc(sorted, func(a, b memmap.FileRange) int { return cmp.Compare(a.Start, b.Start) })
	union := sorted[:0]
	for _, fr := range sorted {
		if last := len(union) - 1; last >= 0 && fr.Start <= union[last].End {
			union[last].End = max(union[last].End, fr.End)
		} else {
			union = append(union, fr)
		}
	}
	return union
}
