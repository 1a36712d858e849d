package kernel

import (
	"errors"
	"io"
	"sync/atomic"

	"gvisor.dev/gvisor/pkg/context"
	"gvisor.dev/gvisor/pkg/sentry/mm"
	"gvisor.dev/gvisor/pkg/sentry/pgalloc"
	"gvisor.dev/gvisor/pkg/sentry/state/stateio"
	"gvisor.dev/gvisor/pkg/sync"
)

// SaveTime says when the next save of a kernel that goes on writes private memory.
type SaveTime string

const (
	// SaveLate is after the kernel goes on; WaitLatePages waits for it.
	SaveLate SaveTime = "late"
	// SaveGrowing is SaveLate to a file that others read meanwhile.
	SaveGrowing SaveTime = "growing"
	// SaveSinceAhead is at once, but not what SavePagesAhead has written to the same file and is unchanged.
	SaveSinceAhead SaveTime = "since"
)

// NextSaveTime is for the next save only.
var NextSaveTime atomic.Value

// latePages is a save whose pages are being written beside the running kernel.
type latePages struct {
	noted chan struct{} // Closed when the metadata is written, or never will be.
	done  chan struct{}
	err   error // Not before done is closed.
}

var lastLatePages atomic.Pointer[latePages]

// pagesAhead is what SavePagesAhead has written. Whatever takes it or drops it begins another turn, and what is
// still being written in an earlier one, to whatever file, is of no use.
var pagesAhead struct {
	mu   sync.Mutex
	save *pgalloc.LateSave
	turn uint64
}

// WaitLatePages returns when the pages of the last save are written, or why they are not.
func WaitLatePages() error {
	late := lastLatePages.Load()
	if late == nil {
		return nil
	}
	<-late.done
	return late.err
}

// WaitLateMetadata returns when the metadata of the last save is written: from then on it can be restored by who waits for
// pages that are not written yet. It says why it is not.
func WaitLateMetadata() error {
	late := lastLatePages.Load()
	if late == nil {
		return nil
	}
	<-late.noted
	select {
	case <-late.done:
		return late.err
	default:
		return nil
	}
}

// ReadPages returns when all memory is read that a restore has left in its file.
func (k *Kernel) ReadPages() error {
	return k.mf.LoadAhead()
}

// SavePagesAhead writes the private memory of all processes, which run on, for a save that follows. What was written
// for another one is forgotten. It takes ownership of pagesFile.
func (k *Kernel) SavePagesAhead(ctx context.Context, pagesFile stateio.AsyncWriter) error {
	_ = WaitLatePages() // Whoever asked for these is told if they failed.
	turn := DropPagesAhead()
	apfs, written, err := startPages(pagesFile)
	if err != nil {
		return err
	}
	var save *pgalloc.LateSave
	if err = k.ReadPages(); err == nil {
		save = k.mf.NewLateSave(apfs)
		k.holdPrivatePages(ctx, save)
		err = save.SaveHeld(nil)
	}
	apfs.MemoryFilesDone()
	if err = errors.Join(err, <-written); err != nil {
		if save != nil {
			save.Release()
		}
		return err
	}
	pagesAhead.mu.Lock()
	defer pagesAhead.mu.Unlock()
	if pagesAhead.turn != turn {
		save.Release()
		return errors.New("pages were saved ahead that are no longer wanted")
	}
	pagesAhead.save = save
	return nil
}

// DropPagesAhead forgets what SavePagesAhead has written, and returns the turn that begins.
func DropPagesAhead() uint64 {
	save, turn := takePagesAhead()
	if save != nil {
		save.Release()
	}
	return turn
}

func takePagesAhead() (*pgalloc.LateSave, uint64) {
	pagesAhead.mu.Lock()
	defer pagesAhead.mu.Unlock()
	save := pagesAhead.save
	pagesAhead.save = nil
	pagesAhead.turn++
	return save, pagesAhead.turn
}

// savePagesSince saves the memory file behind what was written ahead. It takes ownership of both files.
//
// Preconditions: The kernel is paused.
func (k *Kernel) savePagesSince(ctx context.Context, ahead *pgalloc.LateSave, pagesMetadata io.WriteCloser, pagesFile stateio.AsyncWriter) error {
	apfs, written, err := startPages(pagesFile)
	if err == nil {
		if err = ahead.SaveSince(apfs, pagesMetadata); err == nil {
			err = savePrivateMFs(ctx, pagesMetadata, nil, nil)
		}
		apfs.MemoryFilesDone()
		err = errors.Join(err, <-written)
	}
	ahead.Release()
	return errors.Join(err, pagesMetadata.Close())
}

// savePagesLate saves the memory file: what is private to processes after it has returned, all else before. It takes
// ownership of both files.
//
// Preconditions: The kernel is paused.
func (k *Kernel) savePagesLate(ctx context.Context, pagesMetadata io.WriteCloser, pagesFile stateio.AsyncWriter, growing bool) error {
	if err := k.mf.AwaitLoadAll(); err != nil {
		pagesMetadata.Close()
		pagesFile.Close()
		return err
	}
	if writer, ok := pagesFile.(*stateio.FDWriter); ok && growing {
		writer.InOrder()
	}
	apfs, written, err := startPages(pagesFile)
	if err != nil {
		pagesMetadata.Close()
		return err
	}
	k.mf.AwaitRelease()
	save := k.mf.NewLateSave(apfs)
	k.holdPrivatePages(ctx, save)
	rest, err := save.SaveOthers()
	if err != nil {
		save.Release()
		apfs.MemoryFilesDone()
		<-written
		pagesMetadata.Close()
		return err
	}
	late := &latePages{noted: make(chan struct{}), done: make(chan struct{})}
	lastLatePages.Store(late)
	go func() {
		noted := sync.OnceFunc(func() { close(late.noted) })
		defer noted()
		defer close(late.done)
		err := save.SaveHeld(rest)
		if err == nil {
			err = save.WriteMetadata(pagesMetadata)
		}
		if err == nil {
			err = savePrivateMFs(ctx, pagesMetadata, nil, nil)
		}
		if err = errors.Join(err, pagesMetadata.Close()); err == nil {
			noted()
		}
		apfs.MemoryFilesDone()
		late.err = errors.Join(err, <-written)
		save.Release()
	}()
	return nil
}

func startPages(pagesFile stateio.AsyncWriter) (*pgalloc.AsyncPagesFileSave, <-chan error, error) {
	written := make(chan error, 1)
	apfs, err := pgalloc.StartAsyncPagesFileSave(pagesFile, func(err error) { written <- err }) // transfers ownership
	return apfs, written, err
}

// holdPrivatePages has the private memory of all processes be copied before it is written to, while save holds it.
func (k *Kernel) holdPrivatePages(ctx context.Context, save *pgalloc.LateSave) {
	memories := make(map[*mm.MemoryManager]struct{})
	var first *mm.MemoryManager
	k.tasks.mu.RLock()
	if k.globalInit != nil && k.globalInit.leader != nil {
		leader := k.globalInit.leader
		leader.mu.Lock()
		if memory := leader.image.MemoryManager; memory != nil && memory.IncUsers() {
			memories[memory] = struct{}{}
			first = memory
		}
		leader.mu.Unlock()
	}
	for t := range k.tasks.Root.tids {
		t.mu.Lock()
		memory := t.image.MemoryManager
		if _, ok := memories[memory]; !ok && memory != nil && memory.IncUsers() {
			memories[memory] = struct{}{}
		}
		t.mu.Unlock()
	}
	k.tasks.mu.RUnlock()
	if first != nil {
		// What process 1 needs is written first: a copy that is restored meanwhile is asked by it.
		first.HoldPrivatePages(save.HoldFirst)
		first.DecUsers(ctx)
		delete(memories, first)
	}
	for memory := range memories {
		memory.HoldPrivatePages(save.Hold)
		memory.DecUsers(ctx)
	}
}
