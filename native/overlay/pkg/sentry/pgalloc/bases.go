package pgalloc

import (
	"bytes"
	"cmp"
	"fmt"
	"io"
	"math"
	"slices"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/hostarch"
	"gvisor.dev/gvisor/pkg/sentry/memmap"
	pgallocpb "gvisor.dev/gvisor/pkg/sentry/pgalloc/pgalloc_metadata_go_proto"
	"gvisor.dev/gvisor/pkg/sentry/state/stateio"
)

// placeKind is the kind of a range that is no memory, but says where the pages that follow lie: its Start is a place, see
// stateio.FileSpan.
const placeKind = math.MaxUint32

const (
	// nowhere is the place of pages that no file has.
	nowhere = math.MaxUint64

	// basesMost is how many earlier files a checkpoint refers to.
	basesMost = 12

	comparedAtOnce = 1 << 20
)

// Base is a file that has pages of a checkpoint. It is immutable but for growing.
type Base struct {
	fd       int
	dev, ino uint64
	size     uint64
}

// NewBase takes ownership of fd, also if it fails.
func NewBase(fd int) (Base, error) {
	var stat unix.Stat_t
	if err := unix.Fstat(fd, &stat); err != nil {
		unix.Close(fd)
		return Base{}, fmt.Errorf("looking at a file of pages: %w", err)
	}
	return Base{fd: fd, dev: stat.Dev, ino: stat.Ino, size: uint64(stat.Size)}, nil
}

// Close closes the file.
func (b Base) Close() {
	unix.Close(b.fd)
}

// saved is where the pages of a MemoryFile lie that were not changed since its last checkpoint, and perhaps those of others.
type saved struct {
	// files are those of the last checkpoint, by their index in places. An index is never used for another file, because pages
	// may still be unread in the files of the checkpoint that f was restored from; unused is the next one.
	files  map[uint64]Base
	unused uint64

	// ranges are in order, and places say where each begins.
	ranges []memmap.FileRange
	places []uint64
}

// KeepFiles has f refer to the files of the checkpoint that it is restored from in its next one. By index: 0 is the file of
// the checkpoint itself. It takes ownership of them.
//
// Preconditions: LoadFrom is called next.
func (f *MemoryFile) KeepFiles(files map[uint64]Base) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.saved = &saved{files: files}
	for index := range files {
		f.saved.unused = max(f.saved.unused, index+1)
	}
}

// noteSaved notes where the pages of f lie.
func (f *MemoryFile) noteSaved(pb *pgallocpb.MemoryFileMetadataProto) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.saved != nil {
		f.saved.ranges, f.saved.places = placesOf(pb)
	}
}

// replaceSaved has f refer to another checkpoint next time.
func (f *MemoryFile) replaceSaved(next *saved) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.saved != nil {
		for _, file := range f.saved.files {
			file.Close()
		}
	}
	f.saved = next
}

// unread returns which pages of fr a restore has left in their files, and at which places.
func (f *MemoryFile) unread(fr memmap.FileRange) (ranges []memmap.FileRange, places []uint64) {
	amfl := f.asyncPageLoad.Load()
	if amfl == nil {
		return nil, nil
	}
	amfl.pf.mu.Lock()
	defer amfl.pf.mu.Unlock()
	for seg := amfl.unloaded.LowerBoundSegment(fr.Start); seg.Ok() && seg.Start() < fr.End; seg = seg.NextSegment() {
		part := seg.Range().Intersect(fr)
		ranges = append(ranges, part)
		places = append(places, seg.ValuePtr().off+part.Start-seg.Start())
	}
	return ranges, places
}

// read returns when all pages of fr are read.
//
// Preconditions: The caller holds references on them, or f is not being changed.
func (f *MemoryFile) read(fr memmap.FileRange) error {
	if amfl := f.asyncPageLoad.Load(); amfl != nil {
		return amfl.awaitLoad(fr)
	}
	return nil
}

// pagesReader returns the reader of the pages, if it takes several files as one.
func (o *LoadOpts) pagesReader() (*stateio.MappedReader, bool) {
	if o.PagesFile == nil {
		return nil, false
	}
	reader, ok := o.PagesFile.ar.(*stateio.MappedReader)
	return reader, ok
}

// placesOf returns where all pages lie, in the order of memory.
func placesOf(pb *pgallocpb.MemoryFileMetadataProto) (ranges []memmap.FileRange, places []uint64) {
	type placed struct {
		fr    memmap.FileRange
		place uint64
	}
	var all []placed
	at := uint64(0)
	for _, acct := range pb.MemAcct {
		if acct.Kind == placeKind {
			at = acct.Start
			continue
		}
		if !acct.KnownCommitted {
			continue
		}
		all = append(all, placed{memmap.FileRange{Start: acct.Start, End: acct.End}, at})
		at += acct.End - acct.Start
	}
	slices.SortFunc(all, func(a, b placed) int { return cmp.Compare(a.fr.Start, b.fr.Start) })
	for _, one := range all {
		if last := len(ranges) - 1; last >= 0 && ranges[last].End == one.fr.Start && places[last]+ranges[last].Length() == one.place {
			ranges[last].End = one.fr.End
			continue
		}
		ranges = append(ranges, one.fr)
		places = append(places, one.place)
	}
	return ranges, places
}

// earlier is what a checkpoint may refer to.
type earlier struct {
	saved *saved

	// index says which index a file of saved has in the new checkpoint; what has none is not referred to.
	index map[uint64]uint64

	buffer []byte
}

// newEarlier returns what of s the new checkpoint may refer to: what lies in bases, whose first has index 1.
func newEarlier(s *saved, bases []Base, pb *pgallocpb.MemoryFileMetadataProto) *earlier {
	e := &earlier{saved: s, index: make(map[uint64]uint64)}
	if s == nil {
		return e
	}
	useful := s.useful(pb)
	var found []uint64
	for old, file := range s.files {
		if useful[old] == 0 {
			continue
		}
		for i, base := range bases {
			if base.dev == file.dev && base.ino == file.ino {
				e.index[old] = uint64(i + 1)
				found = append(found, old)
				break
			}
		}
	}
	slices.SortFunc(found, func(a, b uint64) int { return cmp.Compare(useful[b], useful[a]) })
	for _, old := range found[min(len(found), basesMost):] {
		delete(e.index, old)
	}
	return e
}

// useful returns how many bytes of each file lie at places of memory that is still in use.
func (s *saved) useful(pb *pgallocpb.MemoryFileMetadataProto) map[uint64]uint64 {
	bytes := make(map[uint64]uint64)
	for _, acct := range pb.MemAcct {
		forEachPart(acct, s.ranges, func(part *pgallocpb.MemAcctRangeProto, i int) {
			if i >= 0 {
				bytes[s.places[i]/stateio.FileSpan] += part.End - part.Start
			}
		})
	}
	return bytes
}

// place returns the place of the new checkpoint for one of the last checkpoint.
func (e *earlier) place(old uint64) (uint64, bool) {
	if e == nil {
		return 0, false
	}
	index, ok := e.index[old/stateio.FileSpan]
	return index*stateio.FileSpan + old%stateio.FileSpan, ok
}

// unchanged returns where each page of fr lies, whose bytes are given, if it is as an earlier file has it, else nowhere.
func (e *earlier) unchanged(fr memmap.FileRange, pages []byte) []uint64 {
	found := make([]uint64, len(pages)/hostarch.PageSize)
	for i := range found {
		found[i] = nowhere
	}
	if e == nil || len(e.index) == 0 {
		return found
	}
	if e.buffer == nil {
		e.buffer = make([]byte, comparedAtOnce)
	}
	whole := &pgallocpb.MemAcctRangeProto{Start: fr.Start, End: fr.End}
	forEachPart(whole, e.saved.ranges, func(part *pgallocpb.MemAcctRangeProto, i int) {
		if i < 0 {
			return
		}
		old := e.saved.places[i] + part.Start - e.saved.ranges[i].Start
		place, ok := e.place(old)
		if !ok {
			return
		}
		file := e.saved.files[old/stateio.FileSpan]
		for at := part.Start; at < part.End; {
			length := min(part.End-at, comparedAtOnce)
			done := at - part.Start
			// What cannot be read counts as changed, and is written again.
			n, _ := preadFull(file.fd, e.buffer[:length], int64(old%stateio.FileSpan+done))
			for off := uint64(0); off+hostarch.PageSize <= uint64(n); off += hostarch.PageSize {
				page := (at + off - fr.Start) / hostarch.PageSize
				if bytes.Equal(e.buffer[off:off+hostarch.PageSize], pages[page*hostarch.PageSize:(page+1)*hostarch.PageSize]) {
					found[page] = place + done + off
				}
			}
			at += length
		}
	})
	return found
}

func preadFull(fd int, into []byte, off int64) (int, error) {
	done := 0
	for done < len(into) {
		n, err := unix.Pread(fd, into[done:], off+int64(done))
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return done, err
		}
		if n == 0 {
			return done, io.ErrUnexpectedEOF
		}
		done += n
	}
	return done, nil
}

// used returns how many bytes of each base a checkpoint refers to; the first is that of index 1.
func used(pb *pgallocpb.MemoryFileMetadataProto, count int) []uint64 {
	bytes := make([]uint64, count)
	ranges, places := placesOf(pb)
	for i, place := range places {
		if index := place / stateio.FileSpan; index > 0 {
			bytes[index-1] += ranges[i].Length()
		}
	}
	return bytes
}
