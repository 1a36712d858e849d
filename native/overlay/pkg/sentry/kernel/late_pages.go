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

// SaveWay says how memory is saved.
type SaveWay struct {
	Time SaveTime

	// Pages is the file that the pages are written to, to be read, and Bases are files of earlier checkpoints. If Pages is nil,
	// the checkpoint refers to none, and later ones do not refer to it.
	Pages *pgalloc.Base
	Bases []pgalloc.Base
}

// Close closes the files that nobody has taken ownership of.
func (w *SaveWay) Close() {
	if w.Pages != nil {
		w.Pages.Close()
	}
	for _, base := range w.Bases {
		base.Close()
	}
	w.Pages, w.Bases = nil, nil
}

// NextSave is for the next save only.
var NextSave atomic.Pointer[SaveWay]

// usedBases is how many bytes of each base the last save refers to.
var usedBases atomic.Pointer[[]uint64]

// UsedBases returns how many bytes of each base the last save refers to, once its pages are written.
func UsedBases() []uint64 {
	if used := usedBases.Load(); used != nil {
		return *used
	}
	return nil
}

// takeWay returns how the save that begins is done.
func takeWay() *SaveWay {
	usedBases.Store(nil)
	if way := NextSave.Swap(nil); way != nil {
		return way
	}
	return &SaveWay{}
}

// noteUsed tells what of its bases a complete save refers to, and has the next one refer to it.
func (w *SaveWay) noteUsed(save *pgalloc.LateSave) error {
	used := save.Used()
	usedBases.Store(&used)
	if w.Pages == nil {
		return nil
	}
	own := *w.Pages
	w.Pages = nil
	return save.Refer(own)
}

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
	way  *SaveWay
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
// for another one is forgotten. It takes ownership of pagesFile and of the bases.
func (k *Kernel) SavePagesAhead(ctx context.Context, pagesFile stateio.AsyncWriter, bases []pgalloc.Base) (retErr error) {
	way := &SaveWay{Bases: bases}
	defer func() {
		if retErr != nil {
			way.Close()
		}
	}()
	_ = WaitLatePages() // Whoever asked for these is told if they failed.
	turn := DropPagesAhead()
	apfs, written, err := startPages(pagesFile)
	if err != nil {
		return err
	}
	save := k.mf.NewLateSave(apfs, bases, true)
	k.holdPrivatePages(ctx, save)
	err = save.SaveHeld(nil)
	apfs.MemoryFilesDone()
	if err = errors.Join(err, <-written); err != nil {
		save.Release()
		return err
	}
	pagesAhead.mu.Lock()
	defer pagesAhead.mu.Unlock()
	if pagesAhead.turn != turn {
		save.Release()
		return errors.New("pages were saved ahead that are no longer wanted")
	}
	pagesAhead.save, pagesAhead.way = save, way
	return nil
}

// DropPagesAhead forgets what SavePagesAhead has written, and returns the turn that begins.
func DropPagesAhead() uint64 {
	save, way, turn := takePagesAhead()
	if save != nil {
		save.Release()
		way.Close()
	}
	return turn
}

func takePagesAhead() (*pgalloc.LateSave, *SaveWay, uint64) {
	pagesAhead.mu.Lock()
	defer pagesAhead.mu.Unlock()
	save, way := pagesAhead.save, pagesAhead.way
	pagesAhead.save, pagesAhead.way = nil, nil
	pagesAhead.turn++
	return save, way, pagesAhead.turn
}

// savePagesSince saves the memory file behind what was written ahead. It takes ownership of both files.
//
// Preconditions: The kernel is paused.
func (k *Kernel) savePagesSince(ctx context.Context, ahead *pgalloc.LateSave, way *SaveWay, pagesMetadata io.WriteCloser, pagesFile stateio.AsyncWriter) error {
	var save *pgalloc.LateSave
	apfs, written, err := startPages(pagesFile)
	if err == nil {
		if save, err = ahead.SaveSince(apfs, pagesMetadata); err == nil {
			err = savePrivateMFs(ctx, pagesMetadata, nil, nil)
		}
		apfs.MemoryFilesDone()
		err = errors.Join(err, <-written)
	}
	ahead.Release()
	if err = errors.Join(err, pagesMetadata.Close()); err == nil {
		err = way.noteUsed(save)
	}
	way.Close()
	return err
}

// savePagesNow saves the memory file. It takes ownership of both files.
//
// Preconditions: The kernel is paused.
func (k *Kernel) savePagesNow(ctx context.Context, way *SaveWay, pagesMetadata io.WriteCloser, pagesFile stateio.AsyncWriter) error {
	var save *pgalloc.LateSave
	apfs, written, err := startPages(pagesFile)
	if err == nil {
		save = k.mf.NewLateSave(apfs, way.Bases, false)
		if _, err = save.SaveOthers(); err == nil {
			err = save.Compact()
		}
		if err == nil {
			err = save.WriteMetadata(pagesMetadata)
		}
		if err == nil {
			err = savePrivateMFs(ctx, pagesMetadata, nil, nil)
		}
		apfs.MemoryFilesDone()
		err = errors.Join(err, <-written)
	}
	if err = errors.Join(err, pagesMetadata.Close()); err == nil {
		err = way.noteUsed(save)
	}
	way.Close()
	return err
}

// savePagesLate saves the memory file: what is private to processes after it has returned, all else before. It takes
// ownership of both files and of those of way.
//
// Preconditions: The kernel is paused.
func (k *Kernel) savePagesLate(ctx context.Context, way *SaveWay, pagesMetadata io.WriteCloser, pagesFile stateio.AsyncWriter) error {
	if way.Pages == nil {
		// Who reads the file while it grows knows of no other.
		if err := k.mf.AwaitLoadAll(); err != nil {
			pagesMetadata.Close()
			pagesFile.Close()
			return err
		}
	}
	if writer, ok := pagesFile.(*stateio.FDWriter); ok && way.Time == SaveGrowing {
		writer.InOrder()
	}
	apfs, written, err := startPages(pagesFile)
	if err != nil {
		pagesMetadata.Close()
		way.Close()
		return err
	}
	save := k.mf.NewLateSave(apfs, way.Bases, false)
	k.holdPrivatePages(ctx, save)
	rest, err := save.SaveOthers()
	if err != nil {
		save.Release()
		apfs.MemoryFilesDone()
		<-written
		pagesMetadata.Close()
		way.Close()
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
		if err = errors.Join(err, <-written); err == nil {
			err = way.noteUsed(save)
		}
		late.err = err
		save.Release()
		way.Close()
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
