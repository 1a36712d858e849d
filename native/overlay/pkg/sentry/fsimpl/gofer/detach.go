package gofer

import (
	"fmt"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/context"
	"gvisor.dev/gvisor/pkg/fdnotifier"
	"gvisor.dev/gvisor/pkg/lisafs"
	"gvisor.dev/gvisor/pkg/sentry/vfs"
)

var _ vfs.FilesystemImplDetachExtension = (*filesystem)(nil)

// Detach implements vfs.FilesystemImplDetachExtension.Detach.
func (fs *filesystem) Detach(ctx context.Context) error {
	if !fs.opts.directfs.enabled {
		return fmt.Errorf("the files of mount %q are reached by a gofer", fs.iopts.UniqueID)
	}
	fs.syncMu.Lock()
	for elem := fs.syncableDentries.Front(); elem != nil; elem = elem.Next() {
		elem.d.inode.detach()
	}
	for fd := fs.specialFileFDs.Front(); fd != nil; fd = fd.Next() {
		fd.detach()
	}
	fs.syncMu.Unlock()
	fs.client.Close()
	fs.client = nil
	return nil
}

// detach closes what the inode has open on the host.
func (i *inode) detach() {
	i.handleMu.Lock()
	defer i.handleMu.Unlock()
	mapped := int32(i.mmapFile.FD())
	read, write := i.readFD.RacyLoad(), i.writeFD.RacyLoad()
	if read >= 0 && read != mapped {
		_ = unix.Close(int(read))
	}
	if write >= 0 && write != mapped && write != read {
		_ = unix.Close(int(write))
	}
	i.readFD.Store(-1)
	i.writeFD.Store(-1)
	i.mmapFD.Store(-1)
	i.mmapFile.Detach()
	if it, ok := i.impl.(*directfsInode); ok {
		if it.controlFD >= 0 {
			_ = unix.Close(it.controlFD)
			it.controlFD = -1
		}
		it.controlFDLisa = lisafs.ClientFD{} // Of a connection that is closed.
	}
}

// detach closes what the file description has open on the host.
func (fd *specialFileFD) detach() {
	fd.releaseMu.Lock()
	defer fd.releaseMu.Unlock()
	if fd.haveQueue {
		fdnotifier.RemoveFD(fd.handle.fd)
		fd.haveQueue = false
	}
	fd.mmapFile.Detach() // It has the handle's.
	fd.handle = noHandle
}
