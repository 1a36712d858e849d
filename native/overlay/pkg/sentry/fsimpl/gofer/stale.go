package gofer

import (
	"fmt"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/abi/linux"
	"gvisor.dev/gvisor/pkg/context"
	"gvisor.dev/gvisor/pkg/gohacks"
	"gvisor.dev/gvisor/pkg/log"
	"gvisor.dev/gvisor/pkg/safemem"
	"gvisor.dev/gvisor/pkg/sentry/kernel/auth"
	"gvisor.dev/gvisor/pkg/sentry/vfs"
)

// isStale returns whether there is nothing of the host behind the inode any more.
func (i *inode) isStale() bool {
	it, ok := i.impl.(*directfsInode)
	return ok && it.controlFD < 0
}

// isAside returns whether the inode or the directory that it was found in is stale.
func (i *directfsInode) isAside(d *dentry) bool {
	if i.controlFD < 0 {
		return true
	}
	parent := d.parent.Load()
	return parent != nil && parent.inode.isStale()
}

// leaveStale gives up an inode that could not be restored as it was.
func (d *dentry) leaveStale(err error) {
	log.Infof("%q is stale: %v", genericDebugPathname(d.inode.fs, d), err)
	it, ok := d.inode.impl.(*directfsInode)
	if !ok {
		return
	}
	if it.controlFD >= 0 {
		d.inode.fs.inodeMu.Lock()
		if d.inode.fs.inodeByKey[it.inoKey] == d.inode {
			delete(d.inode.fs.inodeByKey, it.inoKey)
		}
		d.inode.fs.inodeMu.Unlock()
		_ = unix.Close(it.controlFD)
		it.controlFD = -1
	}
	// Nothing that is found under its name later is taken for it. Only its number is kept, for the next restore and for the
	// file's other names.
	it.inoKey.devMajor, it.inoKey.devMinor = ^uint32(0), ^uint32(0)
}

// isReplaced returns whether the file that is found under the inode's name is another one than what was saved. The number of
// a device may be another one since the host was started again, and the number of an inode be that of a later file.
// Directories have no content of their own.
func (i *directfsInode) isReplaced(stat *unix.Statx_t, d *dentry) bool {
	if i.fs.opts.interop != InteropModeShared || !i.isRegularFile() || d.isDeleted() {
		return false
	}
	if i.inoKey.ino != stat.Ino {
		return true
	}
	return i.btimeValid.Load() && stat.Mask&unix.STATX_BTIME != 0 && i.btime.Load() != dentryTimestampFromUnix(stat.Btime)
}

// restoreUnnamed restores a regular file that the guest had removed and has open. Others do not see it.
func (i *directfsInode) restoreUnnamed(ctx context.Context, opts *vfs.CompleteRestoreOptions, d *dentry) error {
	pieces := i.savedDeletedData
	i.savedDeletedData = nil
	if i.controlFD >= 0 {
		return nil // It has another name, by which it was restored.
	}
	if !d.isDeleted() || !i.isRegularFile() {
		return fmt.Errorf("somebody else removed or replaced it")
	}
	root := i.fs.root.inode.impl.(*directfsInode).controlFD
	mode := i.mode.Load() &^ linux.FileTypeMask
	fd, err := unix.Openat(root, ".", unix.O_TMPFILE|unix.O_RDWR|hostOpenFlags, mode)
	if err != nil {
		return err
	}
	control, err := i.fill(ctx, fd, pieces)
	if err != nil {
		_ = unix.Close(fd)
		return err
	}
	if rw, ok := i.fs.savedDentryRW[d]; ok && (rw.read || rw.write) {
		delete(i.fs.savedDentryRW, d)
		i.readFD.Store(int32(fd))
		i.writeFD.Store(int32(fd))
		i.mmapFD.Store(int32(fd))
		i.mmapFile.SetFD(fd)
	} else {
		_ = unix.Close(fd)
	}
	unnamed := *opts
	unnamed.ValidateFileModificationTimestamps = false
	return i.restoreFile(ctx, control, &unnamed, d)
}

// fill makes a new file what the inode was, and returns another descriptor of it.
func (i *directfsInode) fill(ctx context.Context, fd int, pieces []string) (int, error) {
	h := handle{fd: int32(fd)}
	for number, piece := range pieces {
		data := gohacks.ImmutableBytesFromString(piece)
		for done := 0; done < len(data); {
			n, err := h.writeFromBlocksAt(ctx, safemem.BlockSeqOf(safemem.BlockFromSafeSlice(data[done:])), uint64(number)*deletedPiece+uint64(done))
			if err != nil {
				return -1, err
			}
			done += int(n)
		}
	}
	if err := fchown(fd, auth.KUID(i.uid.Load()), auth.KGID(i.gid.Load())); err != nil {
		return -1, err
	}
	if err := unix.Fchmod(fd, i.mode.Load()&^linux.FileTypeMask); err != nil {
		return -1, err
	}
	return unix.Dup(fd)
}
