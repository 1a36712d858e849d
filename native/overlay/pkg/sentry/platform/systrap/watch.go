package systrap

import (
	"time"

	"gvisor.dev/gvisor/pkg/atomicbitops"
	"gvisor.dev/gvisor/pkg/log"
	"gvisor.dev/gvisor/pkg/sync"
)

const (
	// A context that was interrupted is so again each watchTick. It is stuck after watchPatience of them, while it waits for a stub
	// thread, as among thousands of others, after watchPatienceQueued.
	watchTick           = time.Second
	watchPatience       = 30
	watchPatienceQueued = 600
)

// watch sees to it that a context that was interrupted comes back: its guest may have destroyed what obeys.
type watch struct {
	mu sync.Mutex
	// timer is nil if the context was not interrupted in this turn.
	// +checklocks:mu
	timer *time.Timer
	// started is whether there is a timer: each turn asks, without the lock.
	started atomicbitops.Bool
}

// start interrupts sc again and again from now on, and kills its subprocess if that does not help.
func (w *watch) start(sc *sharedContext) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.timer != nil {
		return
	}
	w.started.Store(true)
	ticks := 0
	var timer *time.Timer
	timer = time.AfterFunc(watchTick, func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		if w.timer != timer {
			return
		}
		// That it was taken by a stub thread is what the guest says, but it gains no more than a delay.
		if ticks++; ticks < watchPatience || ticks < watchPatienceQueued && !sc.isAcked() {
			sc.interruptStub()
			timer.Reset(watchTick)
			return
		}
		log.Warningf("Systrap context is stuck; killing its subprocess. ThreadContext: %v", sc)
		// From now on: it must not come back into the pool.
		sc.subprocess.dead.Store(true)
		go sc.killSubprocess()
	})
	w.timer = timer
}

// stop ends what start has begun.
func (w *watch) stop() {
	if !w.started.Load() {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.timer.Stop()
	w.timer = nil
	w.started.Store(false)
}
