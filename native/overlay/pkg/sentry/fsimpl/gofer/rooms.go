package gofer

import (
	"cmp"
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
	// namelessMost is how many files without a name are told one by one, the largest first.
	namelessMost = 1024
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
	asked       bool
	renewed     chan struct{}
}

// Room is what may be added to a mount: Bytes by this guest, of Left by all guests. It is Sure when nobody added anything while
// it was measured: what was added then may have been measured too. Quota is what may be on the mount altogether.
type Room struct {
	Bytes int64
	Left  int64
	Sure  bool
	Quota int64
}

// RoomUse is what a measuring of a mount may not have seen. All numbers are bytes, and at most budgetEndless.
type RoomUse struct {
	// Added is what this guest has added or moved since the mark.
	Added int64
	// Nameless are its open files that have no name any more. Other guests may have them open, too.
	Nameless []NamelessFile
	// Held is what more of such files take than Nameless has.
	Held int64
	// Moved is set when a directory got another name since the mark: any file may have been missed.
	Moved bool
	// Bytes is what this guest may still add, as it was last told, or below 0 what it has added beyond that.
	Bytes int64
}

// NamelessFile is a file without a name, by its numbers on the host.
type NamelessFile struct {
	Device uint64
	Inode  uint64
	Bytes  int64
}

type room struct {
	// told is set once it is known how much may be added. Until then writes wait.
	told bool
	// sure is set when nothing was added while it was measured.
	sure       bool
	quotaBytes int64
	bytes      int64
	leftBytes  int64
	lowBytes   int64
	sinceBytes int64
	// growing is what is taken for files whose growth a measuring may not see yet.
	growing int64
	// movedBytes are those of files that got another name since the mount was marked, and moves are what is under way.
	movedBytes int64
	moves      moves
	// dirsMoved is set when a directory got another name since the mount was marked.
	dirsMoved bool

	// markedAt is when it was marked last, and freedBefore what freed was then.
	markedAt    time.Time
	freedBefore int64
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
		one = &room{markedAt: time.Now(), freedBefore: r.freed.Load()}
		r.rooms[path] = one
	}
	return one
}

// Mark begins a measuring of mounts: what is added from now on counts beside its outcome. It counts even where nothing was
// limited before.
func (r *volumeRooms) Mark(paths []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.asked = false
	r.limited.Store(true)
	for _, path := range paths {
		one := r.rooms[r.at(path)]
		if one == nil {
			one = r.room(r.at(path))
			one.told, one.bytes, one.leftBytes = true, budgetEndless, budgetEndless
		}
		one.sinceBytes, one.movedBytes, one.dirsMoved = one.growing, one.moves.bytes, one.moves.dirs > 0
		one.markedAt, one.freedBefore = time.Now(), r.freed.Load()
	}
}

// Use ends a measuring: it returns what is to be counted beside its outcome. What is added from now on is not in that. A mount
// without a room may have files without a name, too.
func (r *volumeRooms) Use(paths []string) map[string]RoomUse {
	nameless := r.nameless()
	r.mu.Lock()
	defer r.mu.Unlock()
	uses := make(map[string]RoomUse)
	for _, path := range paths {
		var use RoomUse
		use.Nameless, use.Held = largest(nameless[r.at(path)])
		if one := r.rooms[r.at(path)]; one != nil {
			use.Added = bounded(one.sinceBytes + one.movedBytes)
			use.Moved, use.Bytes = one.dirsMoved, one.bytes
			one.sinceBytes, one.movedBytes = 0, 0
		}
		uses[path] = use
	}
	return uses
}

// Set says how much may be added to each mount since Use. The event, if there is one, is written to when they should be measured
// again.
func (r *volumeRooms) Set(rooms map[string]Room, event *fd.FD) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for path, told := range rooms {
		one := r.room(r.at(path))
		one.told = true
		one.sure = told.Sure && one.sinceBytes == 0
		one.bytes = bounded(bounded(told.Bytes) - one.sinceBytes)
		one.leftBytes = bounded(bounded(told.Left) - one.sinceBytes)
		one.lowBytes = one.bytes / 2
		one.quotaBytes = max(0, bounded(told.Quota))
	}
	r.limited.Store(slices.ContainsFunc(slices.Collect(maps.Values(r.rooms)), (*room).isLimited))
	if event != nil {
		if r.event != nil {
			r.event.Close()
		}
		r.event, r.asked = event, false
	}
	if r.renewed != nil {
		close(r.renewed)
		r.renewed = nil
	}
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
		one.sinceBytes = bounded(one.sinceBytes + bytes)
		one.growing += bytes
		if one.bytes < one.lowBytes {
			r.ask()
		}
		return one, nil, 0, nil
	}
	isFull := one.told && one.sure && bytes > one.leftBytes
	if isFull && r.isFresh(one) {
		return one, nil, 0, linuxerr.ENOSPC
	}
	r.ask()
	if !one.told {
		return one, r.awaitRenewal(), untoldPatience, nil
	}
	return one, r.awaitRenewal(), budgetPatience, nil
}

// isFresh returns whether another measuring now would hardly find anything else.
func (r *volumeRooms) isFresh(one *room) bool {
	return one.freedBefore == r.freed.Load() && time.Since(one.markedAt) < roomFresh
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
	one.dirsMoved = one.dirsMoved || move.dirs > 0
	one.movedBytes = bounded(one.movedBytes + move.bytes)
	return func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		one.moves.remove(move)
	}
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

// nameless are the files that are open and have no name any more, by the path of the mount.
func (r *volumeRooms) nameless() map[string][]NamelessFile {
	r.mu.Lock()
	filesystems := r.filesystems
	r.mu.Unlock()
	found := make(map[string][]NamelessFile)
	for _, fs := range filesystems {
		// Another may have removed the name. What is only cached is of no use to this guest: it need not wait for it to go.
		path := fs.iopts.UniqueID.Path
		found[path] = append(found[path], fs.nameless(func(d *dentry) bool { return d.refs.Load() > 0 })...)
	}
	return found
}

// largest returns the largest files, each once, and what the others take in bytes.
func largest(files []NamelessFile) (most []NamelessFile, restBytes int64) {
	slices.SortFunc(files, func(one, other NamelessFile) int {
		return cmp.Or(
			cmp.Compare(other.Bytes, one.Bytes), cmp.Compare(one.Device, other.Device), cmp.Compare(one.Inode, other.Inode))
	})
	files = slices.Compact(files)
	most = files[:min(len(files), namelessMost)]
	for _, file := range files[len(most):] {
		restBytes = bounded(restBytes + file.Bytes)
	}
	return most, restBytes
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
