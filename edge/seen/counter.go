// Package seen counts what was decided, so that each second is told once.
package seen

import "sync"

// Most entries of one second; what is more is one entry.
const Most = 200

// Entry is what was decided, and how often in a second.
type Entry struct {
	Action   string `json:"action"`
	Rule     *int   `json:"rule"`
	Host     string `json:"host"`
	Port     int    `json:"port"`
	Scheme   string `json:"scheme"`
	Method   string `json:"method"`
	Path     string `json:"path"`
	Reason   string `json:"reason"`
	Count    int    `json:"count"`
	Observed bool   `json:"observed"`
}

const textMost = 1024

// Counter belongs to one sandbox. It is safe for concurrent use.
type Counter struct {
	mu      sync.Mutex
	counts  map[key]int
	order   []key
	crowded int
}

type key struct {
	entry Entry
	rule  int
}

// Note counts one decision.
func (c *Counter) Note(entry Entry) {
	noted := key{entry, -1}
	if entry.Rule != nil {
		noted.rule = *entry.Rule
	}
	noted.entry.Rule, noted.entry.Count = nil, 0
	noted.entry.Path = noted.entry.Path[:min(len(entry.Path), textMost)]
	noted.entry.Reason = noted.entry.Reason[:min(len(entry.Reason), textMost)]
	noted.entry.Method = noted.entry.Method[:min(len(entry.Method), 64)]
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.counts == nil {
		c.counts = map[key]int{}
	}
	if _, ok := c.counts[noted]; !ok {
		if len(c.order) >= Most-1 {
			c.crowded++
			return
		}
		c.order = append(c.order, noted)
	}
	c.counts[noted]++
}

// Take returns what was counted since the last call.
func (c *Counter) Take() []Entry {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.order) == 0 {
		return nil
	}
	entries := make([]Entry, 0, len(c.order)+1)
	for _, each := range c.order {
		entry := each.entry
		entry.Count = c.counts[each]
		if each.rule >= 0 {
			entry.Rule = &each.rule
		}
		entries = append(entries, entry)
	}
	if c.crowded > 0 {
		entries = append(entries, Entry{
			Action: "more", Reason: "more kinds of requests than one second's list has room for", Count: c.crowded,
		})
	}
	c.counts, c.order, c.crowded = nil, nil, 0
	return entries
}
