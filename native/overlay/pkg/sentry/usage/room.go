package usage

import (
	"math"
	"sync"
	"sync/atomic"
)

// Room wakes the one who waits until the guest may use more memory than a mark.
var Room = newRoom()

// room does not count what is given back: who waits wakes too early then, looks, and waits again.
type room struct {
	// grown is by how much the guest may have grown since somebody waits, and left by how much it may: without limit while
	// nobody waits. Each process counts as each beside.
	grown, left, each atomic.Int64

	// unseen is closed when somebody waits again; nil unless the last one was woken because the guest has grown.
	unseen atomic.Pointer[chan struct{}]

	mu      sync.Mutex
	waiting chan struct{} // nil while nobody waits; it is protected by mu
}

func newRoom() *room {
	r := &room{}
	r.left.Store(math.MaxInt64)
	return r
}

// Grow notes that the guest may use more memory from now on. It is called after most of Await would tell of it.
func (r *room) Grow(bytes uint64) {
	if r.grown.Add(int64(bytes)) > r.left.Load() {
		r.wakeIfGrown()
	}
}

// Unseen returns a channel that is closed when the waiter waits again, after the growth of the guest has woken it. It is nil if
// nothing has woken it, or if it waits already.
func (r *room) Unseen() chan struct{} {
	if unseen := r.unseen.Load(); unseen != nil {
		return *unseen
	}
	return nil
}

// AddProcess notes that there is a process more.
func (r *room) AddProcess() {
	r.Grow(uint64(r.each.Load()))
}

// Await returns a channel that is closed when the guest may use more bytes than mark, and nil if it may already. It may be closed
// earlier, and is so when somebody else begins to wait. most tells how much the guest may use at the time, and each what a process
// that begins takes which most does not tell.
func (r *room) Await(mark, each int64, most func() (uint64, error)) (<-chan struct{}, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.wakeLocked()
	if unseen := r.unseen.Swap(nil); unseen != nil {
		close(*unseen)
	}
	waiting := make(chan struct{})
	r.waiting = waiting
	r.each.Store(each)
	// What grows from here on is counted, and what has grown before is told by most.
	r.grown.Store(0)
	used, err := most()
	if err != nil {
		r.wakeLocked()
		return nil, err
	}
	r.left.Store(mark - int64(used))
	if int64(used) > mark {
		r.wakeLocked()
		return nil, nil
	}
	r.wakeIfGrownLocked()
	return waiting, nil
}

func (r *room) wakeIfGrown() {
	r.mu.Lock()
	defer r.mu.Unlock()
	// Somebody else may have begun to wait meanwhile.
	r.wakeIfGrownLocked()
}

// Preconditions: r.mu is locked.
func (r *room) wakeIfGrownLocked() {
	if r.grown.Load() > r.left.Load() {
		r.wakeLocked()
		unseen := make(chan struct{})
		r.unseen.Store(&unseen)
	}
}

// Preconditions: r.mu is locked.
func (r *room) wakeLocked() {
	r.left.Store(math.MaxInt64)
	if r.waiting != nil {
		close(r.waiting)
		r.waiting = nil
	}
}
