package gofer

import (
	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/context"
	"gvisor.dev/gvisor/pkg/sentry/fsutil"
)

// isOpenForWriting returns whether the inode has a write handle, or will have one when it needs it.
func (i *inode) isOpenForWriting() bool {
	return i.isWriteHandleOk() || i.late.Load()
}

// mayBeLate returns whether a restored file can be opened for writing when it is written to. Without a name it could not
// be found then, and a page is written to without asking.
func (d *dentry) mayBeLate() bool {
	i := d.inode
	if !i.isRegularFile() || i.fs.opts.interop == InteropModeShared || i.fs.opts.regularFilesUseSpecialFileFD {
		return false
	}
	if d.isDeleted() || d.vfsd.IsDead() || i.refs.ReadRefs() > 1 {
		return false
	}
	i.mapsMu.Lock()
	defer i.mapsMu.Unlock()
	for seg := i.mappings.FirstSegment(); seg.Ok(); seg = seg.NextSegment() {
		for mapping := range seg.Value() {
			if mapping.Writable {
				return false
			}
		}
	}
	return true
}

// reopen opens the handles that a restored file had.
func (d *dentry) reopen(ctx context.Context, had savedDentryRW) error {
	d.inode.late.Store(false)
	d.inode.fs.lateSynced.Store(false)
	if had.write && d.mayBeLate() {
		if err := d.ensureSharedHandle(ctx, true /* read */, false /* write */, false /* trunc */); err == nil {
			d.inode.late.Store(true)
			return nil
		}
	}
	return d.ensureSharedHandle(ctx, had.read, had.write, false /* trunc */)
}

// openLate opens a file for writing that has waited for this.
func (d *dentry) openLate(ctx context.Context) error {
	if !d.inode.late.Load() {
		return nil
	}
	d.copyUp(ctx)
	d.inode.fs.renameMu.RLock()
	defer d.inode.fs.renameMu.RUnlock()
	return d.openLateLocked(ctx)
}

// Preconditions: fs.renameMu is locked.
func (d *dentry) openLateLocked(ctx context.Context) error {
	if !d.inode.late.Load() {
		return nil
	}
	return d.ensureSharedHandle(ctx, false /* read */, true /* write */, false /* trunc */)
}

// copyUp has the host copy a file that lies in a lower layer, which may take seconds, while no lock is held. By then its name
// may be another file's, which costs nothing but a copy. Who opens the file next will see what went wrong.
func (d *dentry) copyUp(ctx context.Context) {
	d.inode.fs.renameMu.RLock()
	name, parent := d.name, d.parent.Load()
	if parent == nil || d.isDeleted() {
		d.inode.fs.renameMu.RUnlock()
		return
	}
	directory, err := unix.Dup(parent.inode.impl.(*directfsInode).controlFD)
	d.inode.fs.renameMu.RUnlock()
	if err != nil {
		return
	}
	ctx.UninterruptibleSleepStart()
	file, err := unix.Openat(directory, name, unix.O_WRONLY|unix.O_NONBLOCK|hostOpenFlags, 0)
	ctx.UninterruptibleSleepFinish()
	if err == nil {
		_ = unix.Close(file)
	}
	_ = unix.Close(directory)
}

// keepOpen is called before a name is taken from a file: without one it could not be opened for writing any more.
// Should there be no room for that, the name can be taken all the same.
//
// Preconditions: fs.renameMu is locked.
func (d *dentry) keepOpen(ctx context.Context) {
	if d.refs.Load() <= 0 {
		return // Nobody has it open.
	}
	if err := d.openLateLocked(ctx); err != nil {
		ctx.Warningf("%q can no longer be written to: %v", genericDebugPathname(d.inode.fs, d), err)
	}
}

// syncLate has the host write out what was written to a file before it was restored. A read-only file of an overlay's lower
// layer is not synced by the host when asked to.
//
// Preconditions: i.handleMu is locked.
func (i *inode) syncLate(ctx context.Context) error {
	if !i.late.Load() || i.fs.lateSynced.Load() {
		return nil
	}
	ctx.UninterruptibleSleepStart()
	err := unix.Syncfs(int(i.readFD.RacyLoad()))
	ctx.UninterruptibleSleepFinish()
	if err == nil {
		i.fs.lateSynced.Store(true)
	}
	return err
}

// writeBack writes what is cached to the host's files. They need not be on its disk yet, but for those of volumes, which
// nobody else syncs.
func (fs *filesystem) writeBack(ctx context.Context) error {
	if fs.opts.interop == InteropModeShared {
		return fs.Sync(ctx)
	}
	fs.syncMu.Lock()
	defer fs.syncMu.Unlock()
	for elem := fs.syncableDentries.Front(); elem != nil; elem = elem.Next() {
		if err := elem.d.inode.writeBack(ctx); err != nil {
			return err
		}
	}
	return nil
}

func (i *inode) writeBack(ctx context.Context) error {
	i.handleMu.RLock()
	defer i.handleMu.RUnlock()
	if !i.isWriteHandleOk() {
		return nil
	}
	i.dataMu.Lock()
	defer i.dataMu.Unlock()
	h := i.writeHandle()
	return fsutil.SyncDirtyAll(ctx, &i.cache, &i.dirty, i.size.Load(), i.fs.mf, h.writeFromBlocksAt)
}
