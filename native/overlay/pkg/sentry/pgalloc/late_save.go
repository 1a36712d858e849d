package pgalloc

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"fmt"
	"io"
	"slices"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/protobuf/proto"
	"gvisor.dev/gvisor/pkg/hostarch"
	"gvisor.dev/gvisor/pkg/sentry/memmap"
	pgallocpb "gvisor.dev/gvisor/pkg/sentry/pgalloc/pgalloc_metadata_go_proto"
	"gvisor.dev/gvisor/pkg/sentry/state/stateio"
)

// LateSave saves a MemoryFile in two parts: pages that are held, which nobody changes meanwhile, and all others.
type LateSave struct {
	amfs *asyncMemoryFileSave
	pb   *pgallocpb.MemoryFileMetadataProto
	held []memmap.FileRange

	// first is what of held is written before the rest.
	first []memmap.FileRange

	// earlier is what need not be written again, and bases are the files that have it.
	earlier *earlier
	bases   []Base

	// next is where the next page will be written in the checkpoint's own file, and at the place that the metadata is at.
	next uint64
	at   uint64
}

// NewLateSave notes what f has now; its pages will be written to pf. With changing, f is changed meanwhile, and the metadata
// cannot be written; otherwise what nobody uses any more is released first.
//
// Pages that nobody has changed since the last checkpoint are not written if one of bases has them: the metadata then refers
// to it.
func (f *MemoryFile) NewLateSave(pf *AsyncPagesFileSave, bases []Base, changing bool) *LateSave {
	f.lockSettled(changing)
	defer f.mu.Unlock()
	s := &LateSave{amfs: &asyncMemoryFileSave{f: f, pf: pf}, pb: f.exportMetadataProto(), bases: bases}
	s.earlier = newEarlier(f.saved, bases, s.pb)
	return s
}

// Refer has the next checkpoint refer to this one, whose own file it takes ownership of.
func (s *LateSave) Refer(own Base) error {
	next := &saved{files: make(map[uint64]Base)}
	olds := make(map[uint64]uint64)
	if last := s.earlier.saved; last != nil {
		next.unused = last.unused
		for old, index := range s.earlier.index {
			olds[index] = old
		}
	}
	olds[0] = next.unused
	next.files[next.unused] = own
	next.unused++
	for i, bytes := range s.Used() {
		if bytes == 0 {
			continue
		}
		kept := s.bases[i]
		fd, err := unix.Dup(kept.fd)
		if err != nil {
			for _, file := range next.files {
				file.Close()
			}
			return fmt.Errorf("keeping a file of pages: %w", err)
		}
		kept.fd = fd
		next.files[olds[uint64(i+1)]] = kept
	}
	next.ranges, next.places = placesOf(s.pb)
	for i, place := range next.places {
		next.places[i] = olds[place/stateio.FileSpan]*stateio.FileSpan + place%stateio.FileSpan
	}
	s.amfs.f.replaceSaved(next)
	return nil
}

// Used returns how many bytes of each base this checkpoint refers to.
func (s *LateSave) Used() []uint64 {
	return used(s.pb, len(s.bases))
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
// changed since: these are not written again. It releases s, and returns what was saved.
//
// Preconditions: The MemoryFile is not being changed. All pages of s are written.
func (s *LateSave) SaveSince(pf *AsyncPagesFileSave, w io.Writer) (*LateSave, error) {
	ahead := s.written()
	s.Release()
	now := s.amfs.f.NewLateSave(pf, nil, false)
	now.bases, now.earlier = s.bases, s.earlier
	all := now.pb.MemAcct
	now.pb.MemAcct = nil
	var changed []*pgallocpb.MemAcctRangeProto
	var same []writtenPart
	for _, acct := range all {
		forEachPart(acct, ahead.ranges, func(part *pgallocpb.MemAcctRangeProto, i int) {
			switch {
			case i < 0:
				changed = append(changed, part)
			case ahead.offsets[i] == nowhere:
				part.KnownCommitted = false
				now.pb.MemAcct = append(now.pb.MemAcct, part)
			default:
				part.KnownCommitted = true
				same = append(same, writtenPart{part, ahead.offsets[i] + part.Start - ahead.ranges[i].Start})
			}
		})
	}
	slices.SortFunc(same, func(a, b writtenPart) int { return cmp.Compare(a.offset, b.offset) })
	for _, one := range same {
		now.refer(one.part, one.offset)
	}
	now.next = ahead.size
	for _, part := range changed {
		if err := now.save(part); err != nil {
			return nil, err
		}
	}
	return now, now.WriteMetadata(w)
}

type writtenPart struct {
	part   *pgallocpb.MemAcctRangeProto
	offset uint64
}

// written is where pages are in the files; ranges are in order. Pages that have nothing but zeros are nowhere.
type written struct {
	ranges  []memmap.FileRange
	offsets []uint64
	size    uint64
}

func (s *LateSave) written() written {
	var found []writtenPart
	at := uint64(0)
	for _, part := range s.pb.MemAcct {
		if part.Kind == placeKind {
			at = part.Start
		} else if part.KnownCommitted {
			found = append(found, writtenPart{part, at})
			at += part.End - part.Start
		} else {
			found = append(found, writtenPart{part, nowhere})
		}
	}
	slices.SortFunc(found, func(a, b writtenPart) int { return cmp.Compare(a.part.Start, b.part.Start) })
	w := written{size: s.next}
	for _, one := range found {
		w.ranges = append(w.ranges, memmap.FileRange{Start: one.part.Start, End: one.part.End})
		w.offsets = append(w.offsets, one.offset)
	}
	return w
}

// refer makes part, which lies at place, the next of the metadata.
func (s *LateSave) refer(part *pgallocpb.MemAcctRangeProto, place uint64) {
	if s.at != place {
		s.pb.MemAcct = append(s.pb.MemAcct, &pgallocpb.MemAcctRangeProto{Start: place, Kind: placeKind, KnownCommitted: true})
	}
	s.pb.MemAcct = append(s.pb.MemAcct, part)
	s.at = place + part.End - part.Start
}

// Compact writes pages again that lie in files of which more than half is of no use any more, so that these can go.
//
// Preconditions: The MemoryFile is not being changed. All of it is saved.
func (s *LateSave) Compact() error {
	wasted := make(map[uint64]bool)
	for i, bytes := range s.Used() {
		wasted[uint64(i+1)] = bytes > 0 && bytes*2 < s.bases[i].size
	}
	all, at := s.pb.MemAcct, uint64(0)
	s.pb.MemAcct, s.at = nil, 0
	for _, acct := range all {
		switch {
		case acct.Kind == placeKind:
			at = acct.Start
		case !acct.KnownCommitted:
			s.pb.MemAcct = append(s.pb.MemAcct, acct)
		case wasted[at/stateio.FileSpan]:
			fr := memmap.FileRange{Start: acct.Start, End: acct.End}
			if err := s.amfs.f.read(fr); err != nil {
				return err
			}
			s.write(acct)
			at += fr.Length()
		default:
			s.refer(acct, at)
			at += acct.End - acct.Start
		}
	}
	return nil
}

// WriteMetadata writes the metadata of what was saved to w.
func (s *LateSave) WriteMetadata(w io.Writer) error {
	s.pb.MemAcct = append(s.pb.MemAcct, s.amfs.f.touched.export()...)
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

// save notes what of acct has other bytes than zeros. What lies in an earlier file is referred to, and all else is queued for
// writing.
func (s *LateSave) save(acct *pgallocpb.MemAcctRangeProto) error {
	f := s.amfs.f
	unread, places := f.unread(memmap.FileRange{Start: acct.Start, End: acct.End})
	var failed error
	forEachPart(acct, unread, func(part *pgallocpb.MemAcctRangeProto, i int) {
		if failed != nil {
			return
		}
		if i >= 0 {
			if place, ok := s.earlier.place(places[i] + part.Start - unread[i].Start); ok {
				part.KnownCommitted = true
				s.refer(part, place)
				return
			}
			if failed = f.read(memmap.FileRange{Start: part.Start, End: part.End}); failed != nil {
				return
			}
		}
		failed = s.saveRead(part)
	})
	return failed
}

// saveRead does what save does for pages that have been read.
func (s *LateSave) saveRead(acct *pgallocpb.MemAcctRangeProto) error {
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
			if committed {
				s.saveBytes(part, pages[from*hostarch.PageSize:i*hostarch.PageSize])
			} else {
				s.pb.MemAcct = append(s.pb.MemAcct, part)
			}
		}
		return true
	})
	return failed
}

// saveBytes refers to the pages of part, whose bytes are given, or queues them for writing.
func (s *LateSave) saveBytes(part *pgallocpb.MemAcctRangeProto, pages []byte) {
	places := s.earlier.unchanged(memmap.FileRange{Start: part.Start, End: part.End}, pages)
	follows := func(i int) bool {
		if places[i-1] == nowhere || places[i] == nowhere {
			return places[i-1] == places[i]
		}
		return places[i-1]+hostarch.PageSize == places[i]
	}
	for i := 0; i < len(places); {
		from := i
		for i++; i < len(places) && follows(i); i++ {
		}
		run := partOf(part, part.Start+uint64(from)*hostarch.PageSize, part.Start+uint64(i)*hostarch.PageSize)
		if places[from] == nowhere {
			s.write(run)
		} else {
			s.refer(run, places[from])
		}
	}
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

// write makes part the next of the metadata and of the checkpoint's own file.
func (s *LateSave) write(part *pgallocpb.MemAcctRangeProto) {
	s.refer(part, s.next)
	s.next += part.End - part.Start
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
