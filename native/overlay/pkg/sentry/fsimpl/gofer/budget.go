package gofer

import (
	"slices"
	"time"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/abi/linux"
	"gvisor.dev/gvisor/pkg/atomicbitops"
	"gvisor.dev/gvisor/pkg/errors/linuxerr"
	"gvisor.dev/gvisor/pkg/fd"
	"gvisor.dev/gvisor/pkg/hostarch"
	"gvisor.dev/gvisor/pkg/sync"
)

const (
	budgetPatience  = 3 * time.Second
	budgetMostPages = 1 << 40
	budgetEndless   = 1 << 60
	// budgetUnasked is the most that is written before the host is asked again how much it has free.
	budgetUnasked = 16 << 20
)

// Budget is what may be added to the disk; see native/patches/disk-budget.
var Budget diskBudget

type diskBudget struct {
	limited atomicbitops.Bool
	// freed is set when something was given up since the disk was measured.
	freed atomicbitops.Bool

	mu sync.Mutex
	// mostBytes and mostFiles are what may be on the disk altogether, or 0 without any limit.
	mostBytes int64
	mostFiles int64
	// known is set when bytes and files follow from what is on the disk.
	known      bool
	bytes      int64
	files      int64
	lowBytes   int64
	lowFiles   int64
	sinceBytes int64
	sinceFiles int64
	// growing is what is taken for files whose growth a measuring may not see yet.
	growing int64
	// moves are the renames and new names under way.
	moves moves
	// dirsMoved is set when a directory got another name since the disk was marked.
	dirsMoved bool
	asked     bool
	// awaited is set while the disk is measured after something was given up: its outcome may have room.
	awaited     bool
	event       *fd.FD
	renewed     chan struct{}
	filesystems []*filesystem
	// keepFree is the share of the host's disk that must stay free, in percent.
	keepFree int64
	// unasked is what may be written before the host is asked again.
	unasked int64
}

// KeepFree says how much of the host's disk must stay free, in percent; 0 is nothing.
func (b *diskBudget) KeepFree(percent int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.keepFree, b.unasked = percent, 0
}

// Allow says how much may be on the disk altogether; 0 is no limit. What may be added follows it at once.
func (b *diskBudget) Allow(bytes, files int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if bytes == 0 && files == 0 {
		b.mostBytes, b.mostFiles, b.known = 0, 0, false
		b.bytes, b.files = budgetEndless, budgetEndless
		b.limited.Store(false)
		b.renew()
		return
	}
	if bytes == 0 {
		bytes = budgetEndless
	}
	if files == 0 {
		files = budgetEndless
	}
	if b.limited.Load() {
		b.bytes += bytes - b.mostBytes
		b.files += files - b.mostFiles
		b.renew()
	} else {
		b.bytes, b.files = bytes, files
		b.limited.Store(true)
	}
	b.mostBytes, b.mostFiles = bytes, files
}

// used returns what is on the disk, or nil if that is not known.
func (b *diskBudget) used() []int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.mostBytes == 0 || !b.known {
		return nil
	}
	return []int64{b.mostBytes - b.bytes, b.mostFiles - b.files}
}

// resume goes on with what was on the disk when it was saved, unless it is another one now.
func (b *diskBudget) resume(used []int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.mostBytes == 0 || b.known || len(used) != 2 {
		return
	}
	b.bytes, b.files, b.known = b.mostBytes-used[0], b.mostFiles-used[1], true
}

// Mark begins a measuring: what is added from now on counts beside its outcome.
func (b *diskBudget) Mark() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.sinceBytes, b.sinceFiles = bounded(b.growing+b.moves.bytes), b.moves.files
	b.dirsMoved = b.moves.dirs > 0
	b.asked = false
	b.awaited = b.freed.Swap(false) || b.awaited
}

// Set ends a measuring. The event, if there is one, is written to when the disk should be measured again.
func (b *diskBudget) Set(bytes, files int64, event *fd.FD) {
	deletedBytes, deletedFiles := b.deleted()
	b.mu.Lock()
	defer b.mu.Unlock()
	bytes -= deletedBytes + b.sinceBytes
	files -= deletedFiles + b.sinceFiles
	if b.dirsMoved && b.limited.Load() {
		bytes, files = min(bytes, b.bytes), min(files, b.files)
	}
	b.bytes, b.files, b.known = bytes, files, true
	b.lowBytes, b.lowFiles = b.bytes/2, b.files/2
	b.awaited = false
	if b.sinceBytes > 0 || b.sinceFiles > 0 || b.dirsMoved {
		// What was added meanwhile may have been measured too: the next measuring may find more room.
		b.freed.Store(true)
	}
	if event != nil {
		b.setEvent(event)
	}
	b.limited.Store(true)
	b.renew()
}

// Watch tells where to ask for a measuring, without one: it begins with the first need of it.
func (b *diskBudget) Watch(event *fd.FD) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.setEvent(event)
	if !b.known && b.limited.Load() {
		b.ask()
		return
	}
	b.lowBytes, b.lowFiles = b.bytes/2, b.files/2
}

func (b *diskBudget) setEvent(event *fd.FD) {
	if b.event != nil {
		b.event.Close()
	}
	b.event, b.asked = event, false
}

// renew has those look again who wait.
func (b *diskBudget) renew() {
	if b.renewed != nil {
		close(b.renewed)
		b.renewed = nil
	}
}

// Lift ends all limiting.
func (b *diskBudget) Lift() {
	b.Allow(0, 0)
}

// awaitRenewal returns a channel that is closed when the budget is renewed.
func (b *diskBudget) awaitRenewal() chan struct{} {
	if b.renewed == nil {
		b.renewed = make(chan struct{})
	}
	return b.renewed
}

// hostRoom is what may be written until only that share of the host's disk is free, in bytes.
func hostRoom(statfs *linux.Statfs, keepFree int64) int64 {
	const mostBlocks = 1 << 40
	room := int64(min(statfs.BlocksAvailable, mostBlocks)) - int64(min(statfs.Blocks, mostBlocks))/100*keepFree
	return max(room, 0) * min(max(statfs.BlockSize, 1), 1<<20)
}

// leaveRoom returns ENOSPC when the host would have too little free after bytes more.
func (b *diskBudget) leaveRoom(fs *filesystem, bytes int64) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.keepFree == 0 {
		return nil
	}
	if bytes > b.unasked {
		statfs, ok := fs.hostStatfs()
		if !ok {
			return nil
		}
		room := hostRoom(&statfs, b.keepFree)
		if bytes > room {
			return linuxerr.ENOSPC
		}
		// Others write, too: the less is left, the sooner it is asked again.
		b.unasked = bytes + min(budgetUnasked, (room-bytes)/16)
	}
	b.unasked -= bytes
	return nil
}

// hostStatfs asks the host about the disk, where it lies open.
func (fs *filesystem) hostStatfs() (linux.Statfs, bool) {
	if di, ok := fs.root.inode.impl.(*directfsInode); ok && di.controlFD >= 0 {
		statfs, err := di.statfs()
		return statfs, err == nil
	}
	return linux.Statfs{}, false
}

// growth is what a file of one size takes more when it has another one.
func growth(from, to uint64) int64 {
	if to <= from {
		return 0
	}
	return int64(to/hostarch.PageSize) - int64(from/hostarch.PageSize) + boolPage(to) - boolPage(from)
}

func boolPage(size uint64) int64 {
	if size%hostarch.PageSize != 0 {
		return 1
	}
	return 0
}

// take uses some of the budget: all that is asked for, or it returns ENOSPC.
func (b *diskBudget) take(fs *filesystem, pages, files int64) error {
	grown, err := b.takeGrowth(fs, pages, files)
	grown()
	return err
}

// takeGrowth does what take does, for a file that grows until grown is called.
func (b *diskBudget) takeGrowth(fs *filesystem, pages, files int64) (grown func(), err error) {
	if !b.limited.Load() || (pages <= 0 && files == 0) {
		return hasGrown, nil
	}
	if pages > budgetMostPages {
		return hasGrown, linuxerr.ENOSPC // it would not be a number of bytes any more
	}
	bytes := pages * hostarch.PageSize
	if err := b.leaveRoom(fs, bytes); err != nil {
		return hasGrown, err
	}
	deadline := time.Now().Add(budgetPatience)
	for {
		renewed, err := b.tryTake(bytes, files)
		if err != nil {
			return hasGrown, err
		}
		if renewed == nil {
			return func() { b.grown(bytes) }, nil
		}
		select {
		case <-renewed:
		case <-time.After(time.Until(deadline)):
			return hasGrown, linuxerr.ENOSPC
		}
	}
}

// hasGrown is for what does not grow.
func hasGrown() {}

func (b *diskBudget) grown(bytes int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.growing -= bytes
}

// tryTake returns a channel to wait on when a new measuring may help.
func (b *diskBudget) tryTake(bytes, files int64) (chan struct{}, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if bytes <= b.bytes && files <= b.files {
		b.bytes -= bytes
		b.files -= files
		b.sinceBytes += bytes
		b.sinceFiles += files
		b.growing += bytes
		if b.bytes < b.lowBytes || b.files < b.lowFiles {
			b.ask()
		}
		return nil, nil
	}
	if !b.awaited && !b.freed.Load() {
		return nil, linuxerr.ENOSPC
	}
	b.ask()
	return b.awaitRenewal(), nil
}

func (b *diskBudget) ask() {
	if b.event != nil && !b.asked {
		b.asked = true
		b.event.Write([]byte{1, 0, 0, 0, 0, 0, 0, 0})
	}
}

// free notes that something was given up.
func (b *diskBudget) free() {
	Rooms.freed.Add(1)
	if b.limited.Load() {
		b.freed.Store(true)
	}
}

// moves are renames and new names under way: a measuring that begins meanwhile may see a file under none of its names.
type moves struct {
	dirs  int64
	files int64
	bytes int64
}

// moveOf is that of d: what may be missed with it, or that it is a directory.
func moveOf(d *dentry) moves {
	if d.isDir() {
		return moves{dirs: 1}
	}
	return moves{files: 1, bytes: takenBy(d)}
}

func (m *moves) add(other moves) {
	m.dirs, m.files, m.bytes = m.dirs+other.dirs, m.files+other.files, m.bytes+other.bytes
}

func (m *moves) remove(other moves) {
	m.dirs, m.files, m.bytes = m.dirs-other.dirs, m.files-other.files, m.bytes-other.bytes
}

// hasMoved is for what need not be noted.
func hasMoved() {}

// moving notes that d gets another name, or one more, until done is called.
func (b *diskBudget) moving(d *dentry) (done func()) {
	if !d.inode.fs.isBudgeted() {
		return Rooms.moving(d)
	}
	move := moveOf(d)
	b.mu.Lock()
	defer b.mu.Unlock()
	b.moves.add(move)
	b.dirsMoved = b.dirsMoved || move.dirs > 0
	b.sinceFiles += move.files
	b.sinceBytes = bounded(b.sinceBytes + move.bytes)
	return func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.moves.remove(move)
	}
}

// takenBy is what one name takes with its file, in bytes.
func takenBy(d *dentry) int64 {
	pages := int64(1)
	if d.inode.isRegularFile() {
		pages += min(growth(0, d.inode.size.Load()), budgetMostPages)
	}
	return pages * hostarch.PageSize
}

// isBudgeted returns whether fs is the disk: what others change too, like a volume, is no part of it.
func (fs *filesystem) isBudgeted() bool {
	return fs.opts.interop != InteropModeShared
}

// takeBudget does what take does, for the file systems that are the disk, and for those that others change too.
func (fs *filesystem) takeBudget(pages, files int64) error {
	if !fs.isBudgeted() {
		return Rooms.take(fs.iopts.UniqueID.Path, pages)
	}
	return Budget.take(fs, pages, files)
}

// takeGrowth does what takeBudget does, for a file that grows until grown is called.
func (fs *filesystem) takeGrowth(pages int64) (grown func(), err error) {
	if !fs.isBudgeted() {
		return Rooms.takeGrowth(fs.iopts.UniqueID.Path, pages)
	}
	return Budget.takeGrowth(fs, pages, 0)
}

func (b *diskBudget) add(fs *filesystem) {
	if !fs.isBudgeted() {
		Rooms.add(fs)
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if !slices.Contains(b.filesystems, fs) {
		b.filesystems = append(b.filesystems, fs)
	}
}

// Without does something for which no budget is needed, like making files again that were there.
func (b *diskBudget) Without(do func() error) error {
	defer b.limited.Store(b.limited.Swap(false))
	defer Rooms.limited.Store(Rooms.limited.Swap(false))
	return do()
}

// deleted is what files take that are open and have no name any more.
func (b *diskBudget) deleted() (bytes, files int64) {
	b.mu.Lock()
	filesystems := b.filesystems
	b.mu.Unlock()
	for _, fs := range filesystems {
		moreBytes, moreFiles := fs.nameless((*dentry).isDeleted)
		bytes, files = bounded(bytes+moreBytes), files+moreFiles
	}
	return bytes, files
}

// nameless is what those files take that are open and have no name any more, each once. Only what may be one is asked.
func (fs *filesystem) nameless(mayBe func(d *dentry) bool) (bytes, files int64) {
	fs.syncMu.Lock()
	defer fs.syncMu.Unlock()
	seen := make(map[*inode]bool)
	for elem := fs.syncableDentries.Front(); elem != nil; elem = elem.Next() {
		d := elem.d
		if seen[d.inode] || !mayBe(d) || !d.inode.isRegularFile() {
			continue
		}
		if taken, ok := d.inode.nameless(); ok {
			seen[d.inode] = true
			bytes, files = bounded(bytes+taken), files+1
		}
	}
	return bytes, files
}

// nameless returns what a file that has no name any more takes. It asks the host: a name that was not looked up for long goes
// without the inode's notice, and others may have changed the size. What is stale takes nothing.
func (i *inode) nameless() (bytes int64, ok bool) {
	size, ok := i.size.Load(), i.nlink.Load() == 0
	if di, direct := i.impl.(*directfsInode); direct {
		var stat unix.Stat_t
		if di.controlFD < 0 || unix.Fstat(di.controlFD, &stat) != nil {
			return 0, false
		}
		// What was written to the disk may not be there yet.
		if !i.fs.isBudgeted() || uint64(stat.Size) > size {
			size = uint64(stat.Size)
		}
		ok = stat.Nlink == 0
	}
	return min(growth(0, size), budgetMostPages) * hostarch.PageSize, ok
}
