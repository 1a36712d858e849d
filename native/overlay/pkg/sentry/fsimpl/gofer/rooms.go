package gofer

import (
	"encoding/binary"
	"maps"
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
	rooms map[string]*room
	// resolved are the paths at which mounts are, by those of the specification, where these lead through symbolic links. Those
	// on which another one is mounted are at no path.
	resolved map[string]string
	// specified are the paths of the specification, by those at which mounts are.
	specified   map[string]string
	filesystems []*filesystem
	event       *fd.FD
	// asked is what was asked for since rooms were measured or told.
	asked   int64
	renewed chan struct{}
}

// Room is what may be added to a mount: Bytes by this guest. Left is what all guests may add of Quota. All numbers are bytes.
type Room struct {
	Bytes int64
	Left  int64
	Quota int64
}

// RoomUse is what a guest does to a mount that is going to be measured. All numbers are bytes, and at most budgetEndless.
type RoomUse struct {
	// Rest is what it may still add without being told, with what it is adding.
	Rest int64
	// Needed is what a write waits for.
	Needed int64
	// Nameless is what its open files take that have no name any more, which no measuring sees.
	Nameless int64
}

type room struct {
	// told is set once it is known how much may be added. Until then writes wait.
	told       bool
	quotaBytes int64
	bytes      int64
	leftBytes  int64
	lowBytes   int64
	// needed is the most that a write waits for.
	needed int64
	// growing is what was taken for files that have not grown yet.
	growing int64
	// moves are the renames and new names under way.
	moves moves

	// measured is set while the mount is measured. That began at measuredAt, when freed was freedBefore. movedBytes are those of
	// the files that got another name since, namelessBytes those of open files that had none then: it may not see them.
	measured      bool
	measuredAt    time.Time
	freedBefore   int64
	movedBytes    int64
	namelessBytes int64
}

// Limit has writes to the mounts at these paths wait until their rooms are told.
func (r *volumeRooms) Limit(paths []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, path := range paths {
		r.room(r.at(path))
	}
	r.limited.Store(true)
}

// Resolve says where the next mount of the specification is: it may be at another path, and on top of an earlier one.
func (r *volumeRooms) Resolve(specified, resolved string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.resolved == nil {
		r.resolved, r.specified = make(map[string]string), make(map[string]string)
	}
	if below, ok := r.specified[resolved]; ok {
		r.resolved[below] = ""
	}
	r.specified[resolved] = specified
	r.resolved[specified] = resolved
}

// at returns where the mount is that the specification has at this path.
func (r *volumeRooms) at(path string) string {
	if resolved, ok := r.resolved[path]; ok {
		return resolved
	}
	return path
}

// room returns the room of a mount, which it makes.
func (r *volumeRooms) room(path string) *room {
	if r.rooms == nil {
		r.rooms = make(map[string]*room)
	}
	one := r.rooms[path]
	if one == nil {
		one = &room{}
		r.rooms[path] = one
	}
	return one
}

// Measure begins a measuring of mounts.
func (r *volumeRooms) Measure(paths []string) map[string]RoomUse {
	nameless := r.nameless()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.asked = 0
	r.limited.Store(true)
	uses := make(map[string]RoomUse)
	for _, path := range paths {
		one := r.rooms[r.at(path)]
		if one == nil {
			one = r.room(r.at(path))
			one.told, one.bytes, one.leftBytes = true, budgetEndless, budgetEndless
		}
		one.measured, one.measuredAt, one.freedBefore = true, time.Now(), r.freed.Load()
		one.movedBytes, one.namelessBytes = one.moves.hidden(), nameless[r.at(path)]
		uses[path] = RoomUse{bounded(one.bytes + one.growing), one.needed, one.namelessBytes}
	}
	return uses
}

// Set says how much may be added to each mount from now on. It ends a measuring, and returns what that may have missed since this
// guest moved or removed it. The event, if there is one, is written to when a guest needs more: how much that is.
func (r *volumeRooms) Set(rooms map[string]Room, event *fd.FD) (missed int64) {
	nameless := r.nameless()
	r.mu.Lock()
	defer r.mu.Unlock()
	for path, told := range rooms {
		one := r.room(r.at(path))
		missed = bounded(missed + one.set(told, nameless[r.at(path)]))
	}
	r.limited.Store(slices.ContainsFunc(slices.Collect(maps.Values(r.rooms)), (*room).isLimited))
	r.asked = 0
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
	return missed
}

func (one *room) set(told Room, namelessBytes int64) (missed int64) {
	bytes := bounded(max(told.Bytes, 0))
	if one.measured {
		missed = bounded(one.movedBytes + max(namelessBytes-one.namelessBytes, 0))
	}
	if bytes < budgetEndless/2 {
		bytes -= one.growing
		// Who hides files gets no more, and loses nothing.
		bytes = max(bytes-missed, min(bytes, one.bytes), 0)
	}
	if one.measured || !one.told {
		one.leftBytes = bounded(told.Left)
	}
	one.told, one.measured, one.needed = true, false, 0
	one.bytes, one.lowBytes = bytes, bytes/2
	one.quotaBytes = max(0, bounded(told.Quota))
	return missed
}

func (one *room) isLimited() bool {
	return !one.told || one.bytes < budgetEndless/2
}

// bounded is that number of bytes, or one that counts as endless.
func bounded(bytes int64) int64 {
	return min(max(bytes, -budgetEndless), budgetEndless)
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
	bytes, began, untold := pages*hostarch.PageSize, time.Now(), false
	for {
		one, renewed, patience, err := r.tryTake(path, bytes)
		if err != nil {
			return hasGrown, err
		}
		if renewed == nil {
			return func() { r.grown(one, bytes) }, nil
		}
		if untold && patience != untoldPatience {
			began = time.Now() // what it has waited for until it was told counts for nothing
		}
		untold = patience == untoldPatience
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
		one.growing += bytes
		if one.bytes < one.lowBytes {
			r.ask(1)
		}
		return one, nil, 0, nil
	}
	if one.told && bytes > one.leftBytes && r.isFresh(one) {
		return one, nil, 0, linuxerr.ENOSPC
	}
	one.needed = max(one.needed, bytes)
	r.ask(bytes)
	if !one.told {
		return one, r.awaitRenewal(), untoldPatience, nil
	}
	return one, r.awaitRenewal(), budgetPatience, nil
}

// isFresh returns whether another measuring now would hardly find anything else.
func (r *volumeRooms) isFresh(one *room) bool {
	return !one.measured && one.freedBefore == r.freed.Load() && time.Since(one.measuredAt) < roomFresh
}

// awaitRenewal returns a channel that is closed when rooms are told.
func (r *volumeRooms) awaitRenewal() chan struct{} {
	if r.renewed == nil {
		r.renewed = make(chan struct{})
	}
	return r.renewed
}

// moving notes that d gets another name, or one more, until done is called.
func (r *volumeRooms) moving(d *dentry) (done func()) {
	if !r.limited.Load() {
		return hasMoved
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	one := r.rooms[d.inode.fs.iopts.UniqueID.Path]
	if one == nil {
		return hasMoved
	}
	move := moveOf(d)
	one.moves.add(move)
	if one.measured {
		one.movedBytes = bounded(one.movedBytes + move.hidden())
	}
	return func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		one.moves.remove(move)
	}
}

// hidden is what a measuring may miss meanwhile: any file that is in a directory.
func (m moves) hidden() int64 {
	if m.dirs > 0 {
		return budgetEndless
	}
	return bounded(m.bytes)
}

func (r *volumeRooms) ask(bytes int64) {
	if r.event != nil && bytes > r.asked {
		r.asked = bytes
		r.event.Write(binary.LittleEndian.AppendUint64(nil, uint64(bytes)))
	}
}

func (r *volumeRooms) add(fs *filesystem) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !slices.Contains(r.filesystems, fs) {
		r.filesystems = append(r.filesystems, fs)
	}
}

// nameless is what files take that are open and have no name any more, in bytes, by the path of the mount.
func (r *volumeRooms) nameless() map[string]int64 {
	r.mu.Lock()
	filesystems := r.filesystems
	r.mu.Unlock()
	found := make(map[string]int64)
	for _, fs := range filesystems {
		// Another may have removed the name. What is only cached is of no use to this guest: it need not wait for it to go.
		bytes, _ := fs.nameless(func(d *dentry) bool { return d.refs.Load() > 0 })
		path := fs.iopts.UniqueID.Path
		found[path] = bounded(found[path] + bytes)
	}
	return found
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
