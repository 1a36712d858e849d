package gofer

import (
	"slices"
	"time"

	"gvisor.dev/gvisor/pkg/atomicbitops"
	"gvisor.dev/gvisor/pkg/context"
	"gvisor.dev/gvisor/pkg/errors/linuxerr"
	"gvisor.dev/gvisor/pkg/fd"
	"gvisor.dev/gvisor/pkg/hostarch"
	"gvisor.dev/gvisor/pkg/sync"
)

const (
	// untoldPatience is how long a write waits until it is told for the first time what room there is.
	untoldPatience = time.Minute
	// roomFresh is how long a mount that is full is taken for full: others may give room up, and nobody tells of it.
	roomFresh = time.Second
)

// Rooms is what may be added to mounts that others change too; see native/patches/volume-rooms.
var Rooms volumeRooms

type volumeRooms struct {
	limited atomicbitops.Bool
	// freed counts what was given up.
	freed atomicbitops.Int64

	mu sync.Mutex
	// rooms are by the path of the mount. What has none is not limited.
	rooms       map[string]*room
	filesystems []*filesystem
	event       *fd.FD
	asked       bool
	renewed     chan struct{}
}

// Room is what may be added to a mount: Bytes by this guest, of Left by all guests.
type Room struct {
	Bytes int64
	Left  int64
}

type room struct {
	// told is set once it is known how much may be added. Until then writes wait.
	told bool
	// sure is set when nothing was added while it was measured.
	sure       bool
	bytes      int64
	leftBytes  int64
	lowBytes   int64
	sinceBytes int64
	// growing is what is taken for files whose growth a measuring may not see yet.
	growing int64

	// markedAt is when it was marked last, and freedBefore what freed was then.
	markedAt    time.Time
	freedBefore int64
}

// Limit has writes to the mounts at these paths wait until their rooms are told.
func (r *volumeRooms) Limit(paths []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, path := range paths {
		r.room(path)
	}
	r.limited.Store(true)
}

// room returns the room of a mount, which it makes.
func (r *volumeRooms) room(path string) *room {
	if r.rooms == nil {
		r.rooms = make(map[string]*room)
	}
	one := r.rooms[path]
	if one == nil {
		one = &room{markedAt: time.Now(), freedBefore: r.freed.Load()}
		r.rooms[path] = one
	}
	return one
}

// Mark begins a measuring of mounts: what is added from now on counts beside its outcome.
func (r *volumeRooms) Mark(paths []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.asked = false
	for _, path := range paths {
		if one := r.rooms[path]; one != nil {
			one.sinceBytes, one.markedAt, one.freedBefore = one.growing, time.Now(), r.freed.Load()
		}
	}
}

// Set ends a measuring: so much may be added to each mount since it was marked. The event, if there is one, is written to when
// they should be measured again.
func (r *volumeRooms) Set(rooms map[string]Room, event *fd.FD) {
	held := r.held()
	r.mu.Lock()
	defer r.mu.Unlock()
	for path, told := range rooms {
		one := r.room(path)
		one.told = true
		// What was added meanwhile may have been measured too: the next measuring may find more room.
		one.sure = one.sinceBytes == 0
		one.bytes = told.Bytes - one.sinceBytes - held[path]
		one.leftBytes = told.Left - one.sinceBytes - held[path]
		if told.Bytes < budgetEndless {
			r.limited.Store(true)
		}
		one.lowBytes = one.bytes / 2
	}
	if event != nil {
		if r.event != nil {
			r.event.Close()
		}
		r.event = event
	}
	if r.renewed != nil {
		close(r.renewed)
		r.renewed = nil
	}
}

// take uses some of a mount's room: all that is asked for, or it returns ENOSPC.
func (r *volumeRooms) take(path string, pages int64) error {
	grown, err := r.takeGrowth(path, pages)
	grown()
	return err
}

// takeGrowth does what take does, for a file that grows until grown is called.
func (r *volumeRooms) takeGrowth(path string, pages int64) (grown func(), err error) {
	if !r.limited.Load() || pages <= 0 {
		return hasGrown, nil
	}
	if pages > budgetMostPages {
		return hasGrown, linuxerr.ENOSPC // it would not be a number of bytes any more
	}
	bytes, began := pages*hostarch.PageSize, time.Now()
	for {
		one, renewed, patience, err := r.tryTake(path, bytes)
		if err != nil {
			return hasGrown, err
		}
		if renewed == nil {
			return func() { r.grown(one, bytes) }, nil
		}
		select {
		case <-renewed:
		case <-time.After(patience - time.Since(began)):
			return hasGrown, linuxerr.ENOSPC
		}
	}
}

func (r *volumeRooms) grown(one *room, bytes int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if one != nil {
		one.growing -= bytes
	}
}

// tryTake returns the room, if it is limited, and a channel to wait on when a new measuring may help, and for how long.
func (r *volumeRooms) tryTake(path string, bytes int64) (one *room, renewed chan struct{}, patience time.Duration, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	one = r.rooms[path]
	if one == nil {
		return nil, nil, 0, nil
	}
	if bytes <= one.bytes {
		one.bytes -= bytes
		one.leftBytes -= bytes
		one.sinceBytes += bytes
		one.growing += bytes
		if one.bytes < one.lowBytes {
			r.ask()
		}
		return one, nil, 0, nil
	}
	isFull := one.told && one.sure && bytes > one.leftBytes
	if isFull && one.freedBefore == r.freed.Load() && time.Since(one.markedAt) < roomFresh {
		return one, nil, 0, linuxerr.ENOSPC
	}
	r.ask()
	if r.renewed == nil {
		r.renewed = make(chan struct{})
	}
	if !one.told {
		return one, r.renewed, untoldPatience, nil
	}
	return one, r.renewed, budgetPatience, nil
}

func (r *volumeRooms) ask() {
	if r.event != nil && !r.asked {
		r.asked = true
		r.event.Write([]byte{1, 0, 0, 0, 0, 0, 0, 0})
	}
}

func (r *volumeRooms) add(fs *filesystem) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !slices.Contains(r.filesystems, fs) {
		r.filesystems = append(r.filesystems, fs)
	}
}

// held is what files take that are open and have no name any more, by the path of the mount.
func (r *volumeRooms) held() map[string]int64 {
	r.mu.Lock()
	filesystems := r.filesystems
	r.mu.Unlock()
	held := make(map[string]int64)
	for _, fs := range filesystems {
		// Another may have removed the name. What is only cached is of no use to this guest: it need not wait for it to go.
		bytes, _ := fs.nameless(func(d *dentry) bool { return d.refs.Load() > 0 })
		held[fs.iopts.UniqueID.Path] += bytes
	}
	return held
}

// refreshShared asks the host how large a file is that others change too, before its growth is counted.
//
// Preconditions: d.inode.metadataMu must be locked. !d.isSynthetic().
func (d *dentry) refreshShared(ctx context.Context) error {
	if d.inode.fs.isBudgeted() || !Rooms.limited.Load() || !d.inode.isRegularFile() {
		return nil
	}
	return d.refreshSizeLocked(ctx)
}
