package kernel

import (
	"math"
	"time"

	"gvisor.dev/gvisor/pkg/sync"
)

var loadPeriods = [3]time.Duration{time.Minute, 5 * time.Minute, 15 * time.Minute}

// load is how many tasks ran, averaged over three periods; see native/patches/load-average.
var load loadAverage

type loadAverage struct {
	mu       sync.Mutex
	averages [3]float64
	running  int
	since    time.Time
}

// observe notes that so many tasks run from now on.
func (l *loadAverage) observe(running int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.catchUp()
	l.running = running
}

func (l *loadAverage) catchUp() {
	now := time.Now()
	if !l.since.IsZero() {
		for i, period := range loadPeriods {
			share := -math.Expm1(-float64(now.Sub(l.since)) / float64(period))
			l.averages[i] += share * (float64(l.running) - l.averages[i])
		}
	}
	l.since = now
}

// Load returns the averages over 1, 5 and 15 minutes, and how many tasks run now.
func (k *Kernel) Load() (averages [3]float64, running int) {
	load.mu.Lock()
	defer load.mu.Unlock()
	load.catchUp()
	return load.averages, load.running
}

// LastTID returns the id that was given last in a namespace, and how many tasks it has.
func (ns *PIDNamespace) LastTID() (last ThreadID, tasks int) {
	ns.owner.mu.RLock()
	defer ns.owner.mu.RUnlock()
	return ns.last, len(ns.tids)
}
