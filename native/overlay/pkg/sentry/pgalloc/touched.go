package pgalloc

import (
	"sync"
	"time"

	"gvisor.dev/gvisor/pkg/hostarch"
	"gvisor.dev/gvisor/pkg/sentry/memmap"
	pgallocpb "gvisor.dev/gvisor/pkg/sentry/pgalloc/pgalloc_metadata_go_proto"
)

// touchedKind is the kind of a range that is no memory, but says which pages were waited for soon after a restore. Such ranges
// are in the order in which that was.
const touchedKind = placeKind - 1

const (
	touchedFor  = 2 * time.Second
	touchedMost = 32 << 20
)

// ReadTouched has a restore read first what was waited for after the restores before.
var ReadTouched bool

// touched is what was waited for soon after a restore, and after those before.
type touched struct {
	mu     sync.Mutex
	until  time.Time
	ranges []memmap.FileRange
	bytes  uint64
}

// begin begins with what a checkpoint knows.
func (t *touched) begin(pb *pgallocpb.MemoryFileMetadataProto) []memmap.FileRange {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.until = time.Now().Add(touchedFor)
	for _, acct := range pb.MemAcct {
		if acct.Kind == touchedKind {
			t.addLocked(memmap.FileRange{Start: acct.Start, End: acct.End})
		}
	}
	return t.ranges[:len(t.ranges):len(t.ranges)]
}

// add adds pages that were waited for.
func (t *touched) add(frs []memmap.FileRange) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if time.Now().After(t.until) {
		return
	}
	for _, fr := range frs {
		t.addLocked(fr)
	}
}

func (t *touched) addLocked(fr memmap.FileRange) {
	if t.bytes+fr.Length() > touchedMost {
		return
	}
	t.bytes += fr.Length()
	t.ranges = append(t.ranges, fr)
}

// export returns the pages as ranges of metadata, each page once.
func (t *touched) export() []*pgallocpb.MemAcctRangeProto {
	t.mu.Lock()
	defer t.mu.Unlock()
	var all []*pgallocpb.MemAcctRangeProto
	seen := make(map[uint64]struct{})
	for _, fr := range t.ranges {
		for at := fr.Start; at < fr.End; at += hostarch.PageSize {
			if _, ok := seen[at]; ok {
				continue
			}
			seen[at] = struct{}{}
			if last := len(all) - 1; last >= 0 && all[last].End == at {
				all[last].End += hostarch.PageSize
				continue
			}
			all = append(all, &pgallocpb.MemAcctRangeProto{Start: at, End: at + hostarch.PageSize, Kind: touchedKind})
		}
	}
	return all
}

// readTouched queues reads of what was touched before, until the queue is full.
//
// Preconditions: apfl.amflsMu is locked.
func (apfl *AsyncPagesFileLoad) readTouched() {
	for amfl := apfl.amfls.Front(); amfl != nil && apfl.canEnqueue(); amfl = amfl.Next() {
		apfl.mu.Lock()
		left := len(amfl.ahead) > 0
		apfl.mu.Unlock()
		if !left {
			continue
		}
		amfl.f.mu.Lock()
		if amfl.f.awaitingReads > 0 {
			amfl.f.mu.Unlock()
			continue
		}
		apfl.mu.Lock()
		for apfl.canEnqueue() && len(amfl.ahead) > 0 {
			fr := amfl.ahead[0]
			seg := amfl.unloaded.LowerBoundSegment(fr.Start)
			for seg.Ok() && seg.Start() < fr.End && seg.ValuePtr().started {
				seg = seg.NextSegment()
			}
			if !seg.Ok() || seg.Start() >= fr.End {
				amfl.ahead = amfl.ahead[1:]
				continue
			}
			seg = amfl.unloaded.Isolate(seg, fr)
			part := seg.Range()
			// The pages may be released meanwhile, see the reads for which nobody waits.
			n := apfl.enqueueRange(amfl, part, seg.ValuePtr().off, true /* tempRef */)
			if n == 0 {
				break
			}
			part.End = part.Start + n
			amfl.unloaded.SplitAfter(seg, part.End).ValuePtr().started = true
			amfl.f.incRefLocked(part)
			amfl.f.readingAhead += part.Length()
		}
		apfl.mu.Unlock()
		amfl.f.mu.Unlock()
	}
}

// endReadAhead notes that pages are not held any more for being read ahead.
func (f *MemoryFile) endReadAhead(length uint64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.readingAhead -= length
}

// lockSettled locks f.mu while no page is held only because it is being read ahead: such a reference would be saved, and nobody
// would drop it after a restore. Unless f is changing, no page is waste either: it would be saved as one to be read, and its
// old bytes would come over what it is used for next. The end of a read ahead may be what makes it waste.
func (f *MemoryFile) lockSettled(changing bool) {
	f.mu.Lock()
	f.awaitingReads++
	for f.readingAhead > 0 && !f.loadFailed() || f.haveWaste && !changing {
		f.mu.Unlock()
		time.Sleep(50 * time.Microsecond)
		f.mu.Lock()
	}
	f.awaitingReads--
	if amfl := f.asyncPageLoad.Load(); amfl != nil {
		amfl.pf.lfStatus.Notify(aplLFPending)
	}
}

// loadFailed returns whether a restore's reads have failed: those that were under way then never end.
func (f *MemoryFile) loadFailed() bool {
	amfl := f.asyncPageLoad.Load()
	return amfl != nil && amfl.pf.err() != nil
}
