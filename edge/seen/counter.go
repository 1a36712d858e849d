// Package seen keeps decisions until somebody takes them. Equal ones of a moment are counted.
package seen

import (
	"sync"
	"time"
)

// Most entries of one moment. What is more is counted by action alone.
const Most = 200

const (
	// Decisions that nobody takes for this long become lines of their own: later ones do not join them.
	moment = 2 * time.Second
	// So many lines are kept at once, and then so many a second, as the audit log has them. What is more is counted.
	linesAtOnce    = 200
	linesPerSecond = 1
	textMost       = 1024
	// Each action, and each of them only observed.
	kinds = 8
)

// Entry is a decision, and how many equal ones it stands for.
type Entry struct {
	At       float64 `json:"at"`              // when the first was, in seconds since 1970
	Until    float64 `json:"until,omitempty"` // when the last was, of a line that was kept; 0: it is fresh
	Action   string  `json:"action"`
	Rule     *int    `json:"rule"`
	Host     string  `json:"host"`
	Port     int     `json:"port"`
	Scheme   string  `json:"scheme"`
	Method   string  `json:"method"`
	Path     string  `json:"path"`
	Reason   string  `json:"reason"`
	Count    int     `json:"count"`
	Observed bool    `json:"observed"`
	Ceiling  bool    `json:"ceiling"`
}

// cost is about the memory of a line.
func (e *Entry) cost() int64 {
	const ofNumbers = 200
	return int64(ofNumbers + len(e.Host) + len(e.Method) + len(e.Path) + len(e.Reason))
}

// Counter keeps the decisions about one sandbox. It is safe for concurrent use.
//
// As long as they are taken, equal ones are counted, and each Close begins anew. What nobody takes becomes lines, which
// have a time and stay in their order.
type Counter struct {
	Room *Room

	mu      sync.Mutex
	since   time.Time // of the first decision of this moment; zero: there is none
	counts  tally
	crowded tally // of decisions that the moment has no room for
	over    tally // of those that come too fast, or that are refused because there is no room
	lines   []Entry
	bytes   int64 // of the lines that were kept
	left    float64
	asOf    time.Time
}

// tally counts equal decisions, in the order of the first of each.
type tally struct {
	at    map[key]int
	order []counted
}

type key struct {
	entry Entry
	rule  int
}

type counted struct {
	key
	count       int
	first, last time.Time
}

func (t *tally) add(which key, now time.Time, count int) {
	at, ok := t.at[which]
	if !ok {
		if t.at == nil {
			t.at = map[key]int{}
		}
		at = len(t.order)
		t.at[which] = at
		t.order = append(t.order, counted{key: which, first: now})
	}
	t.order[at].count += count
	t.order[at].last = now
}

// take empties it.
func (t *tally) take() []counted {
	order := t.order
	*t = tally{}
	return order
}

func (c *counted) entry() Entry {
	made := c.key.entry
	made.At, made.Count = seconds(c.first), c.count
	if c.rule >= 0 {
		rule := c.rule
		made.Rule = &rule
	}
	return made
}

func seconds(at time.Time) float64 { return float64(at.UnixMilli()) / 1000 }

// Note counts one decision.
func (c *Counter) Note(entry Entry) {
	noted := key{entry, -1}
	if entry.Rule != nil {
		noted.rule = *entry.Rule
	}
	noted.entry.Rule, noted.entry.Count, noted.entry.At = nil, 0, 0
	noted.entry.Path = noted.entry.Path[:min(len(entry.Path), textMost)]
	noted.entry.Reason = noted.entry.Reason[:min(len(entry.Reason), textMost)]
	noted.entry.Method = noted.entry.Method[:min(len(entry.Method), 64)]
	now := time.Now()
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.since.IsZero() && now.Sub(c.since) >= moment {
		c.keep(now)
	}
	if c.since.IsZero() {
		c.since = now
	}
	if _, ok := c.counts.at[noted]; !ok && len(c.counts.order) >= Most-kinds {
		c.crowded.add(plain(&entry, "more kinds of requests than a second's list has room for"), now, 1)
		return
	}
	c.counts.add(noted, now, 1)
}

// Refuse counts a decision that there is no room for a line of.
func (c *Counter) Refuse(entry Entry) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.over.add(plain(&entry, "refused, as there is no room to note it"), time.Now(), 1)
}

// plain is what decisions are counted by when their details have no room.
func plain(entry *Entry, reason string) key {
	return key{Entry{Action: entry.Action, Observed: entry.Observed, Scheme: "tcp", Reason: reason}, -1}
}

// IsFull tells whether so much waits that nothing may be decided for the sandbox that should be noted.
func (c *Counter) IsFull() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.bytes >= c.Room.share || c.Room.isFull()
}

// keep makes lines of the decisions of a moment that nobody has taken. The lock is held.
func (c *Counter) keep(now time.Time) {
	c.left = min(linesAtOnce, c.left+now.Sub(c.asOf).Seconds()*linesPerSecond)
	c.asOf, c.since = now, time.Time{}
	for _, each := range append(c.counts.take(), c.crowded.take()...) {
		entry := each.entry()
		if c.left < 1 {
			c.over.add(plain(&entry, "more than is kept of each while nobody takes it"), each.last, each.count)
			continue
		}
		c.left--
		entry.Until = seconds(each.last)
		c.lines = append(c.lines, entry)
		c.charge(entry.cost())
	}
}

func (c *Counter) charge(bytes int64) {
	c.bytes += bytes
	c.Room.used.Add(bytes)
}

// Close ends the moment, so that all decisions until now can be taken.
func (c *Counter) Close() {
	now := time.Now()
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.since.IsZero() && now.Sub(c.since) >= moment {
		c.keep(now)
	}
	c.since = time.Time{}
	for _, each := range append(c.counts.take(), c.crowded.take()...) {
		c.lines = append(c.lines, each.entry())
	}
	for _, each := range c.over.take() {
		entry := each.entry()
		entry.Until = seconds(each.last)
		c.lines = append(c.lines, entry)
		c.charge(entry.cost())
	}
}

// IsEmpty tells whether there is nothing to take, also after another Close.
func (c *Counter) IsEmpty() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.since.IsZero() && len(c.over.order) == 0 && len(c.lines) == 0
}

// Waits tells whether there is more to take without another Close.
func (c *Counter) Waits() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.lines) > 0
}

// Take returns the first decisions until the last Close: so many at most, and none if there are no more.
func (c *Counter) Take(most int) []Entry {
	c.mu.Lock()
	defer c.mu.Unlock()
	most = min(most, len(c.lines))
	taken := c.lines[:most:most]
	c.lines = c.lines[most:]
	c.charge(-costs(taken))
	return taken
}

// Return puts back what was taken and not told.
func (c *Counter) Return(entries []Entry) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.lines = append(entries, c.lines...)
	c.charge(costs(entries))
}

// costs are those of the lines that were kept. What is fresh is bounded anyway.
func costs(entries []Entry) (bytes int64) {
	for i := range entries {
		if entries[i].Until != 0 {
			bytes += entries[i].cost()
		}
	}
	return bytes
}
