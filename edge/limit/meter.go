// Package limit bounds how much a rule lets through.
package limit

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"atoll/policy"
)

// ErrTotal says that all bytes of a rule are used up.
var ErrTotal = errors.New("the rule's total_bytes are used up")

// Meter counts for one rule of one sandbox. It is safe for concurrent use.
type Meter struct {
	limit policy.Limit

	mu    sync.Mutex
	name  string    // the supervisor's name for the rule
	times []passed  // the requests of the last per_s seconds
	free  time.Time // when the bytes that passed are paid for
	total int64
	told  int64 // of the total
	fresh int64 // the end of the first part whose requests are not told
}

// passed is a request, and the end of the part of the time that it is counted in, in milliseconds since 1970.
type passed struct {
	at   time.Time
	part int64
}

const (
	// Requests are counted by intervals: this many in the limit's time, each of at least partMin.
	parts    = 500
	partMost = 1 << 62
	partMin  = time.Second
)

// Request counts a request, or says how long to wait for the next that may pass.
func (m *Meter) Request(now time.Time) (wait time.Duration, ok bool) {
	if m == nil || m.limit.Requests == nil {
		return 0, true
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if wait, isFull := m.full(now); isFull {
		return wait, false
	}
	one := passed{now, m.part(now)}
	m.times = append(m.times, one)
	m.fresh = min(m.fresh, one.part)
	return 0, true
}

// Full tells whether no request may pass now, and how long to wait for the next that may. It counts none.
func (m *Meter) Full(now time.Time) (wait time.Duration, isFull bool) {
	if m == nil || m.limit.Requests == nil {
		return 0, false
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.full(now)
}

func (m *Meter) full(now time.Time) (time.Duration, bool) {
	span := m.span()
	gone := 0
	for gone < len(m.times) && now.Sub(m.times[gone].at) >= span {
		gone++
	}
	m.times = m.times[gone:]
	if int64(len(m.times)) >= *m.limit.Requests {
		return span - now.Sub(m.times[0].at), true
	}
	return 0, false
}

func (m *Meter) span() time.Duration {
	return time.Duration(*m.limit.PerSeconds * float64(time.Second))
}

// part is the end of the part that a moment is in.
func (m *Meter) part(at time.Time) int64 {
	long := max(m.span()/parts, partMin).Milliseconds()
	return (at.UnixMilli()/long + 1) * long
}

// Spent tells whether no byte is left.
func (m *Meter) Spent() bool {
	if m == nil || m.limit.TotalBytes == nil {
		return false
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.total >= *m.limit.TotalBytes
}

// Bytes counts bytes and waits until the rate allows them.
func (m *Meter) Bytes(ctx context.Context, count int) error {
	if m == nil || m.limit.BytesS == nil && m.limit.TotalBytes == nil {
		return nil
	}
	wait, err := m.take(time.Now(), count)
	if err != nil || wait <= 0 {
		return err
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// A quarter of a second's bytes may pass at once.
const burst = 250 * time.Millisecond

func (m *Meter) take(now time.Time, count int) (time.Duration, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.total += int64(count)
	if m.limit.TotalBytes != nil && m.total > *m.limit.TotalBytes {
		return 0, ErrTotal
	}
	if m.limit.BytesS == nil {
		return 0, nil
	}
	if m.free.Before(now.Add(-burst)) {
		m.free = now.Add(-burst)
	}
	m.free = m.free.Add(time.Duration(float64(count) / float64(*m.limit.BytesS) * float64(time.Second)))
	return m.free.Sub(now), nil
}

// Piece is how many bytes to move at once, so that a slow rate is an even one.
func (m *Meter) Piece() int {
	if m == nil || m.limit.BytesS == nil {
		return 64 << 10
	}
	return int(min(max(*m.limit.BytesS/8, 256), 64<<10))
}

// Table has the meters of one sandbox. A meter outlives a change of the policy that keeps its rule.
type Table struct {
	mu     sync.Mutex
	meters map[string]*Meter
}

// Of is the meter of a rule; nil when it has no limit.
func (t *Table) Of(rule *policy.Rule) *Meter {
	if rule == nil || rule.Limit == nil {
		return nil
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.meters == nil {
		t.meters = map[string]*Meter{}
	}
	meter, ok := t.meters[rule.Key]
	if !ok {
		meter = &Meter{limit: *rule.Limit, fresh: partMost}
		t.meters[rule.Key] = meter
	}
	return meter
}

// Told is the report of a rule's counts for a supervisor, so that they outlive this process. A repeated report changes
// nothing.
type Told struct {
	Key   string `json:"key"` // the supervisor's name for the rule
	Total int64  `json:"total_bytes"`
	// Of each part of the time in which something has changed: its end in milliseconds since 1970, and all requests in it.
	Requests [][2]int64 `json:"requests"`
}

// Spent is the counts of a rule from before this process.
type Spent struct {
	Rule     int        `json:"rule"`
	Key      string     `json:"key"`
	Total    int64      `json:"total_bytes"`
	Requests [][2]int64 `json:"requests"`
}

// Take returns the counts that have changed since the last call.
func (t *Table) Take() []Told {
	t.mu.Lock()
	defer t.mu.Unlock()
	var all []Told
	for _, meter := range t.meters {
		if told, changed := meter.tell(); changed {
			all = append(all, told)
		}
	}
	return all
}

func (m *Meter) tell() (Told, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	told := Told{Key: m.name, Total: m.total, Requests: [][2]int64{}}
	changed := m.fresh < partMost || m.total != m.told
	counted := map[int64]int64{}
	for i := len(m.times) - 1; i >= 0 && m.times[i].part >= m.fresh; i-- {
		counted[m.times[i].part]++
	}
	for _, end := range slices.Sorted(maps.Keys(counted)) {
		told.Requests = append(told.Requests, [2]int64{end, counted[end]})
	}
	m.fresh, m.told = partMost, m.total
	return told, changed
}

// Greet has everything be told again.
func (t *Table) Greet() {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, meter := range t.meters {
		meter.mu.Lock()
		meter.fresh, meter.told = 0, 0
		meter.mu.Unlock()
	}
}

// Resume has the meters of these rules count on from earlier counts, unless they count already.
func (t *Table) Resume(rules []*policy.Rule, counted []Spent, now time.Time) {
	for _, each := range counted {
		if each.Rule < 0 || each.Rule >= len(rules) || rules[each.Rule].Limit == nil {
			continue
		}
		t.mu.Lock()
		_, known := t.meters[rules[each.Rule].Key]
		t.mu.Unlock()
		meter := t.Of(rules[each.Rule])
		if !known {
			meter.resume(each, now)
		}
		meter.mu.Lock()
		meter.name = each.Key
		meter.mu.Unlock()
	}
}

func (m *Meter) resume(counted Spent, now time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.total, m.told = counted.Total, counted.Total
	if m.limit.Requests == nil {
		return
	}
	for _, each := range counted.Requests {
		ago := time.Duration(now.UnixMilli()-each[0]) * time.Millisecond
		if ago >= m.span() {
			continue
		}
		// The part may not be over, but a clock that was set back is not believed.
		one := passed{now.Add(-max(ago, -max(m.span()/parts, partMin))), each[0]}
		for count := each[1]; count > 0 && int64(len(m.times)) < *m.limit.Requests; count-- {
			m.times = append(m.times, one)
		}
	}
}

// Keep forgets the meters of rules that are gone.
func (t *Table) Keep(rules []*policy.Rule) {
	t.mu.Lock()
	defer t.mu.Unlock()
	kept := map[string]*Meter{}
	for _, rule := range rules {
		if meter, ok := t.meters[rule.Key]; ok {
			kept[rule.Key] = meter
		}
	}
	t.meters = kept
}
