package gofer

import (
	"time"

	"gvisor.dev/gvisor/pkg/atomicbitops"
	"gvisor.dev/gvisor/pkg/context"
	"gvisor.dev/gvisor/pkg/errors/linuxerr"
	"gvisor.dev/gvisor/pkg/sentry/kernel"
	"gvisor.dev/gvisor/pkg/sync"
)

// asyncWaitMost is how long those wait whom nobody can interrupt.
const asyncWaitMost = time.Second

// ReadRate and WriteRate bound what is read and written a second; see native/patches/disk-rate.
var ReadRate, WriteRate diskRate

// diskRate is a token bucket that holds what passes in a tenth of a second, and may be overdrawn by one call.
type diskRate struct {
	bytesPerSecond atomicbitops.Int64

	mu   sync.Mutex
	have float64
	at   time.Time
}

// Set sets the rate; 0 is no limit.
func (r *diskRate) Set(bytesPerSecond int64) {
	r.bytesPerSecond.Store(bytesPerSecond)
}

// most is how much one call may move.
func (r *diskRate) most() int64 {
	if rate := r.bytesPerSecond.Load(); rate > 0 {
		return max(1<<16, rate/10)
	}
	return 1 << 62
}

// wait returns when a call may begin.
func (r *diskRate) wait(ctx context.Context) error {
	began := time.Now()
	_, interruptible := ctx.(*kernel.Task) // not by its Value, which those that work for a task have, too
	for {
		rate := r.bytesPerSecond.Load()
		if rate <= 0 {
			return nil
		}
		debt := r.debt(float64(rate))
		if debt <= 0 {
			return nil
		}
		pause := max(time.Millisecond, time.Duration(debt/float64(rate)*1e9))
		if !interruptible {
			left := asyncWaitMost - time.Since(began)
			if left <= 0 {
				return nil
			}
			pause = min(pause, left)
		}
		_, err := ctx.BlockWithTimeout(nil, true, pause)
		if err == linuxerr.ErrInterrupted {
			return err
		}
	}
}

// AwaitRate returns when a call that is submitted may begin, and whether there is a rate.
func (fd *regularFileFD) AwaitRate(ctx context.Context, write bool) (bool, error) {
	rate := &ReadRate
	if write {
		rate = &WriteRate
	}
	if rate.bytesPerSecond.Load() <= 0 {
		return false, nil
	}
	return true, rate.wait(ctx)
}

func (r *diskRate) debt(rate float64) float64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := time.Now()
	r.have = min(rate/10, r.have+now.Sub(r.at).Seconds()*rate)
	r.at = now
	return -r.have
}

// note counts what a call has moved.
func (r *diskRate) note(bytes int64) {
	if bytes <= 0 || r.bytesPerSecond.Load() <= 0 {
		return
	}
	r.mu.Lock()
	r.have -= float64(bytes)
	r.mu.Unlock()
}
