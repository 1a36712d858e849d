// Package pace keeps a guest from what it may not do more often.
package pace

import (
	"context"
	"sync"
	"time"
)

// A few things at once are cheaper than a wake-up for each.
const shortestPause = 20 * time.Millisecond

// Pace is a token bucket: it allows something burst times at once, and perSecond times in a second after that. It is safe for
// concurrent use. All callers that wait at the same time may go on, and the next callers wait for the excess.
type Pace struct {
	perSecond, burst float64
	now              func() time.Time

	mu   sync.Mutex
	left float64
	asOf time.Time
}

// New makes a pace whose burst is full.
func New(perSecond, burst float64, now func() time.Time) *Pace {
	return &Pace{perSecond: perSecond, burst: burst, now: now, left: burst, asOf: now()}
}

// until is the time until the next one is allowed; 0 is now.
func (p *Pace) until() time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := p.now()
	p.left = min(p.burst, p.left+now.Sub(p.asOf).Seconds()*p.perSecond)
	p.asOf = now
	return time.Duration(max(0, (1-p.left)/p.perSecond) * float64(time.Second))
}

// Take counts one.
func (p *Pace) Take() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.left--
}

// Wait waits until the next one is allowed. It is false when the context ends before.
func (p *Pace) Wait(ctx context.Context) bool {
	for {
		pause := p.until()
		if pause == 0 {
			return ctx.Err() == nil
		}
		if !Rest(ctx, max(pause, shortestPause)) {
			return false
		}
	}
}

// Rest waits. It is false when the context ends before.
func Rest(ctx context.Context, span time.Duration) bool {
	timer := time.NewTimer(span)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
