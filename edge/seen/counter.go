// Package seen counts decisions, so that a second with many decisions needs one report.
package seen

import "sync"

// Most entries of one second. What is more is counted by action alone.
const Most = 200

// Entry is a decision, and its number in a second.
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
	Ceiling  bool   `json:"ceiling"`
}

const textMost = 1024

// Counter belongs to one sandbox. It is safe for concurrent use.
type Counter struct {
	mu      sync.Mutex
	counts  map[key]int
	order   []key
	crowded map[key]int // of decisions that the list has no room for
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
		if len(c.order) >= Most-kinds {
			c.crowd(noted.entry)
			return
		}
		c.order = append(c.order, noted)
	}
	c.counts[noted]++
}

// Each action, and each of them only observed.
const kinds = 8

func (c *Counter) crowd(entry Entry) {
	if c.crowded == nil {
		c.crowded = map[key]int{}
	}
	c.crowded[key{Entry{
		Action: entry.Action, Observed: entry.Observed, Scheme: "tcp",
		Reason: "more kinds of requests than a second's list has room for",
	}, -1}]++
}

// Take returns the decisions since the last call.
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
	for each, count := range c.crowded {
		entry := each.entry
		entry.Count = count
		entries = append(entries, entry)
	}
	c.counts, c.order, c.crowded = nil, nil, nil
	return entries
}
