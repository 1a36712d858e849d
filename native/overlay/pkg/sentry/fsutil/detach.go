package fsutil

import "golang.org/x/sys/unix"

// Detach unmaps and closes the host file; SetFD may then be called with another one.
//
// Preconditions: Nothing uses a mapping of f, and no application has one.
func (f *MmapCachedFile) Detach() {
	f.mapsMu.Lock()
	defer f.mapsMu.Unlock()
	for chunkStart, m := range f.mappings {
		f.unmapAndRemove(chunkStart, m)
	}
	if fd := f.fd.Load(); fd >= 0 {
		f.fd.Store(-1)
		_ = unix.Close(int(fd))
	}
}
