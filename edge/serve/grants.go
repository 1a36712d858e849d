package serve

import "time"

const grantsMost = 256

// granted is what a person has approved for some time. The query belongs to the path.
type granted struct {
	rule   string // its key
	scheme string
	method string
	host   string
	sent   string // the host as the request says it
	port   int
	path   string
}

// grants are those of one sandbox. The lock of its asks guards them.
type grants map[granted]grant

type grant struct {
	until  time.Time // of the clock that nobody sets
	reason string
}

// add lets such requests pass for some time, and returns the reason to note. If there are too many, the one that would end
// first ends now.
func (g *grants) add(what granted, now time.Time, lasts time.Duration) string {
	if *g == nil {
		*g = grants{}
	}
	until := now.Add(lasts)
	if known, ok := (*g)[what]; ok && known.until.After(until) {
		return known.reason
	}
	if _, ok := (*g)[what]; !ok && len(*g) >= grantsMost {
		g.makeRoom(now)
	}
	one := grant{until, approvedOnce + " until " + until.UTC().Format(time.RFC3339)}
	(*g)[what] = one
	return one.reason
}

func (g *grants) makeRoom(now time.Time) {
	var first granted
	var until time.Time
	for what, each := range *g {
		if !each.until.After(now) {
			delete(*g, what)
			continue
		}
		if until.IsZero() || each.until.Before(until) {
			first, until = what, each.until
		}
	}
	if len(*g) >= grantsMost {
		delete(*g, first)
	}
}

// reason is why such a request passes; empty: it does not.
func (g *grants) reason(what granted, now time.Time) string {
	found, ok := (*g)[what]
	switch {
	case !ok:
		return ""
	case !found.until.After(now):
		delete(*g, what)
		return ""
	}
	return found.reason
}

// reasonFor is why a request passes that was approved for some time; empty: it does not.
func (a *asks) reasonFor(what granted) string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.grants.reason(what, time.Now())
}
