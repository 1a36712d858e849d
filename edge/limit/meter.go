// Package limit bounds how much a rule lets through.
package limit

import (
	"context"
	"errors"
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
	times []time.Time // of the requests of the last per_s seconds
	free  time.Time   // when the bytes that passed are paid for
	total int64
	told  int64 // of the total
	fresh int64 // requests since it told
}

// Request counts a request, or says how long to wait for the next that may pass.
func (m *Meter) Request(now time.Time) (wait time.Duration, ok bool) {
	if m == nil || m.limit.Requests == nil {
		return 0, true
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	span := time.Duration(*m.limit.PerSeconds * float64(time.Second))
	gone := 0
	for gone < len(m.times) && now.Sub(m.times[gone]) >= span {
		gone++
	}
	m.times = m.times[gone:]
	if int64(len(m.times)) >= *m.limit.Requests {
		return span - now.Sub(m.times[0]), false
	}
	m.times = append(m.times, now)
	m.fresh++
	return 0, true
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
		meter = &Meter{limit: *rule.Limit}
		t.meters[rule.Key] = meter
	}
	return meter
}

// Told is what the supervisor is told of a rule, so that it outlives this process.
type Told struct {
	Rule     int   `json:"rule"`
	Total    int64 `json:"total_bytes"`
	Requests int64 `json:"requests"` // since it was last told
}

// Spent is what was counted for a rule before this process began to: requests come as how long ago and how many.
type Spent struct {
	Rule     int          `json:"rule"`
	Total    int64        `json:"total_bytes"`
	Requests [][2]float64 `json:"requests"`
}

// Take returns what these rules have counted, as far as it has changed since the last call.
func (t *Table) Take(rules []*policy.Rule) []Told {
	t.mu.Lock()
	defer t.mu.Unlock()
	var all []Told
	for _, rule := range rules {
		if meter, ok := t.meters[rule.Key]; ok {
			if told, changed := meter.tell(rule.Index); changed {
				all = append(all, told)
			}
		}
	}
	return all
}

func (m *Meter) tell(rule int) (Told, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	told := Told{rule, m.total, m.fresh}
	changed := m.fresh > 0 || m.total != m.told
	m.fresh, m.told = 0, m.total
	return told, changed
}

// Resume has the meters of these rules count on from what was counted before, unless they count already.
func (t *Table) Resume(rules []*policy.Rule, counted []Spent, now time.Time) {
	for _, each := range counted {
		if each.Rule < 0 || each.Rule >= len(rules) || rules[each.Rule].Limit == nil {
			continue
		}
		t.mu.Lock()
		_, known := t.meters[rules[each.Rule].Key]
		t.mu.Unlock()
		if !known {
			t.Of(rules[each.Rule]).resume(each, now)
		}
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
		if each[0] >= *m.limit.PerSeconds {
			continue
		}
		at := now.Add(-time.Duration(each[0] * float64(time.Second)))
		for count := int64(each[1]); count > 0 && int64(len(m.times)) < *m.limit.Requests; count-- {
			m.times = append(m.times, at)
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
