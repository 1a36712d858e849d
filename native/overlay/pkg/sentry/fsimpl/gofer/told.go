package gofer

import (
	"time"

	"gvisor.dev/gvisor/pkg/abi/linux"
	"gvisor.dev/gvisor/pkg/hostarch"
	"gvisor.dev/gvisor/pkg/sentry/vfs"
)

const (
	// budgetTold is how long somebody waits who asks what is left after something was given up.
	budgetTold = 100 * time.Millisecond
	// endlessTold is the size that is told of what has no limit, as network file systems do. What the host has is not the guest's
	// to know: it tells what neighbours do.
	endlessTold = 1 << 50
)

// settle has what statfs tells of measured, if that takes but a moment, and returns what fills it in.
func (fs *filesystem) settle(mount *vfs.Mount) (tell func(statfs *linux.Statfs)) {
	if fs.isBudgeted() {
		Budget.settle()
		return Budget.tell
	}
	if mount.MountFlags()&linux.ST_RDONLY != 0 {
		// Nothing can be added. `df` does not show what has no size.
		return func(statfs *linux.Statfs) { tellSize(statfs, 0, 0) }
	}
	path := fs.iopts.UniqueID.Path
	Rooms.settle(path)
	return func(statfs *linux.Statfs) { Rooms.tell(path, statfs) }
}

// tellSize replaces what the host says of its disk. Each file takes a page at least.
func tellSize(statfs *linux.Statfs, size, left int64) {
	left = min(max(left, 0), size)
	statfs.BlockSize, statfs.FragmentSize = hostarch.PageSize, hostarch.PageSize
	statfs.Blocks, statfs.BlocksFree = uint64(size)/hostarch.PageSize, uint64(left)/hostarch.PageSize
	statfs.BlocksAvailable = statfs.BlocksFree
	statfs.Files, statfs.FilesFree = statfs.Blocks, statfs.BlocksFree
}

// tell makes of what the host says of its disk what holds for the guest.
func (b *diskBudget) tell(statfs *linux.Statfs) {
	b.mu.Lock()
	defer b.mu.Unlock()
	available := hostRoom(statfs, b.keepFree)
	tellSize(statfs, endlessTold, endlessTold)
	if b.mostBytes == 0 {
		return
	}
	if b.mostBytes < budgetEndless {
		tellSize(statfs, b.mostBytes, b.bytes)
		statfs.BlocksAvailable = min(statfs.BlocksFree, uint64(available)/hostarch.PageSize)
	}
	statfs.Files = min(statfs.Files, uint64(b.mostFiles))
	statfs.FilesFree = min(statfs.FilesFree, uint64(max(b.files, 0)), statfs.Files)
}

// settle has what was given up measured, if that takes but a moment.
func (b *diskBudget) settle() {
	renewed := b.remeasured()
	if renewed == nil {
		return
	}
	select {
	case <-renewed:
	case <-time.After(budgetTold):
	}
}

// remeasured asks for a measuring if something was given up, and returns a channel to wait on.
func (b *diskBudget) remeasured() chan struct{} {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.event == nil || b.mostBytes == 0 || (!b.awaited && !b.freed.Load()) {
		return nil
	}
	b.ask()
	return b.awaitRenewal()
}

// tell makes of what the host says of its disk what holds for a mount that others change too: its quota.
func (r *volumeRooms) tell(path string, statfs *linux.Statfs) {
	r.mu.Lock()
	defer r.mu.Unlock()
	one := r.rooms[path]
	if one == nil || !one.isLimited() {
		tellSize(statfs, endlessTold, endlessTold)
		return
	}
	tellSize(statfs, one.quotaBytes, one.leftBytes)
}

// settle has a mount measured of which more may be known, if that takes but a moment. One that was not told yet is waited for,
// as writes do.
func (r *volumeRooms) settle(path string) {
	began := time.Now()
	for {
		renewed, patience := r.remeasured(path)
		if renewed == nil {
			return
		}
		select {
		case <-renewed:
		case <-time.After(patience - time.Since(began)):
			return
		}
	}
}

// remeasured asks for a measuring if that may find something else, and returns a channel to wait on and for how long.
func (r *volumeRooms) remeasured(path string) (renewed chan struct{}, patience time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	one := r.rooms[path]
	if one == nil || !one.isLimited() {
		return nil, 0
	}
	if !one.told {
		return r.awaitRenewal(), budgetPatience
	}
	if r.isFresh(one) || r.event == nil {
		return nil, 0
	}
	r.ask(1)
	return r.awaitRenewal(), budgetTold
}
