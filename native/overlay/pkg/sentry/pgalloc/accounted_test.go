package pgalloc

import (
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/hostarch"
	"gvisor.dev/gvisor/pkg/sentry/memmap"
	"gvisor.dev/gvisor/pkg/sentry/usage"
)

func TestAccountedIsWhatMayBeCommittedAndGrowthWakes(t *testing.T) {
	fd, err := unix.MemfdCreate("accounted", unix.MFD_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	f, err := NewMemoryFile(os.NewFile(uintptr(fd), "accounted"), MemoryFileOpts{DisableMemoryAccounting: true})
	if err != nil {
		t.Fatal(err)
	}
	defer f.Destroy()
	const page = hostarch.PageSize
	allocate := func(count uint64, mode AllocationMode) memmap.FileRange {
		fr, err := f.Allocate(count*page, AllocOpts{Kind: usage.Anonymous, Mode: mode})
		if err != nil {
			t.Fatal(err)
		}
		return fr
	}
	// settle waits until what was released is given back.
	settle := func(want uint64) {
		t.Helper()
		for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(time.Millisecond) {
			f.mu.Lock()
			span, wasted := f.memAcct.Span(), f.haveWaste
			f.mu.Unlock()
			_, most, err := f.MostUsage()
			if err == nil && span == want*page && most == span && f.accounted.Load() == span && !wasted {
				return
			}
			if time.Now().After(deadline) {
				t.Fatalf("%d pages are accounted, at most %d used (%v), of %d", span/page, most/page, err, want)
			}
		}
	}

	first := allocate(100, AllocateUncommitted)
	settle(100)
	second := allocate(50, AllocateAndCommit)
	settle(150)

	waiting, err := usage.Room.Await(200*page, 0, func() (uint64, error) {
		_, most, err := f.MostUsage()
		return most, err
	})
	if err != nil {
		t.Fatal(err)
	}
	third := allocate(50, AllocateUncommitted)
	select {
	case <-waiting:
		t.Error("it wakes at the mark")
	default:
	}
	fourth := allocate(1, AllocateUncommitted)
	select {
	case <-waiting:
	default:
		t.Error("it sleeps on")
	}
	settle(201)

	f.DecRef(memmap.FileRange{Start: first.Start + 10*page, End: first.Start + 30*page})
	settle(181)
	f.Decommit(second)
	settle(181)
	for _, fr := range []memmap.FileRange{
		{Start: first.Start, End: first.Start + 10*page}, {Start: first.Start + 30*page, End: first.End}, second, third, fourth,
	} {
		f.DecRef(fr)
	}
	settle(0)

	kept := allocate(7, AllocateUncommitted)
	restored := &MemoryFile{}
	for range 2 {
		if err := restored.importMetadataProto(f.exportMetadataProto()); err != nil || restored.accounted.Load() != 7*page {
			t.Errorf("%v; %d bytes are accounted", err, restored.accounted.Load())
		}
	}
	f.DecRef(kept)
}
