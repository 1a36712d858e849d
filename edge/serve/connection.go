package serve

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"atoll/edge/change"
	"atoll/edge/seen"
	"atoll/policy"
)

// ruling is the policy for one connection: the rules that fit its destination.
type ruling struct {
	*set
	kept policy.Kept
	// Of the team's ceiling; nil: it has none.
	ceiling *policy.Kept
	asks    bool // one of the rules does
}

// judges are all rules that decide here.
func (r *ruling) judges() []policy.Kept {
	if r.ceiling == nil {
		return []policy.Kept{r.kept}
	}
	return []policy.Kept{r.kept, *r.ceiling}
}

// bound has the ceiling decide on the request to send.
func (r *ruling) bound(own policy.Verdict, sent *policy.Request) policy.Verdict {
	if r.ceiling == nil {
		return own
	}
	over := policy.Judge(*r.ceiling, sent, false)
	return policy.Bounded(own, &over)
}

// judgeRaw decides on a connection that is not HTTP.
func (r *ruling) judgeRaw() policy.Verdict {
	own := policy.JudgeRaw(r.kept, r.observe)
	if r.ceiling == nil {
		return own
	}
	over := policy.JudgeRaw(*r.ceiling, false)
	return policy.Bounded(own, &over)
}

// connection is one connection of a guest.
type connection struct {
	sandbox *sandbox
	to      policy.Destination
	guest   *guestEnd
	ctx     context.Context
	cancel  context.CancelCauseFunc
	lingers atomic.Bool // its guest may still be sending when it ends

	// Set before requests come, and not changed then.
	scheme      string
	serverName  string
	misdirected string

	given rules // last, perhaps of a version that has not come yet; guarded by the sandbox's changing

	mu        sync.Mutex
	ruling    *ruling       // nil: rules have to come, or the policy that they are of
	changed   chan struct{} // closed when ruling is set
	cutting   *time.Timer   // ends the connection unless ruling is set before
	exchanges map[*exchange]struct{}
	echoes    []change.Echo
}

// end closes the connection and everything that belongs to it.
func (c *connection) end(cause error) {
	c.cancel(cause)
	c.guest.Close()
	c.sandbox.drop(c)
}

// reset ends the connection so that both sides see that it was broken off.
func (c *connection) reset(cause error) {
	if c.guest.reset(func() { c.sandbox.drop(c) }) {
		c.cancel(cause)
	}
}

// await has the connection wait for rules, or for the policy that they are of. It is cut if that takes too long.
func (c *connection) await() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ruling == nil && c.changed != nil {
		return // it waits already, and not longer than from then on
	}
	waits := make(chan struct{})
	c.ruling, c.changed = nil, waits
	c.cutting = time.AfterFunc(staleMost, func() {
		c.mu.Lock()
		stillWaits := c.ruling == nil && c.changed == waits
		c.mu.Unlock()
		if stillWaits && c.ctx.Err() == nil {
			c.reset(errors.New("no rules came for it after a change of the policy"))
		}
	})
}

// setRules has the connection judged by these rules. It ignores rules of another version than the newest: the connection
// waits for the newest rules, or for a newer policy.
func (c *connection) setRules(given rules) error {
	c.sandbox.changing.Lock()
	defer c.sandbox.changing.Unlock()
	c.given = given
	current := c.sandbox.current()
	if given.version == current.version {
		return c.apply(current)
	}
	c.await()
	if given.version > current.version {
		return nil
	}
	return fmt.Errorf("connection %s: its rules are of version %d, not %d", c.guest.mark.id, given.version, current.version)
}

// apply has the connection judged by its given rules, which are of this policy, and judges its current exchange again. The
// sandbox's changing is held.
func (c *connection) apply(current *set) error {
	next := &ruling{set: current}
	kept, fault := c.fitting(current.rules, c.given.own)
	next.kept, next.asks = policy.Keep(kept), policy.AnyAsks(kept)
	if current.ceiling != nil {
		above, missing := c.fitting(current.ceiling, c.given.above)
		ceiling := policy.Keep(above)
		next.ceiling, fault = &ceiling, errors.Join(fault, missing)
	}
	c.mu.Lock()
	if c.ruling == nil {
		c.cutting.Stop()
		close(c.changed)
	}
	c.ruling = next
	going := make([]*exchange, 0, len(c.exchanges))
	for each := range c.exchanges {
		going = append(going, each)
	}
	c.mu.Unlock()
	for _, each := range going {
		each.judgeAgain(next)
	}
	if c.isOfModels() && current.models == nil {
		c.reset(errNoModels)
	}
	return fault
}

// fitting are the rules with these indices. If one is not for the destination, there is none, so that nothing is allowed.
func (c *connection) fitting(rules []*policy.Rule, indices []int) ([]*policy.Rule, error) {
	var kept []*policy.Rule
	for _, index := range indices {
		if index < 0 || index >= len(rules) || !rules[index].Fits(c.to) {
			return nil, fmt.Errorf("connection %s: there is no rule %d for it, so nothing is allowed", c.guest.mark.id, index)
		}
		kept = append(kept, rules[index])
	}
	return kept, nil
}

// current waits for the rules if they are being changed.
func (c *connection) current(ctx context.Context) (*ruling, error) {
	for {
		c.mu.Lock()
		found, changed := c.ruling, c.changed
		c.mu.Unlock()
		if found != nil {
			return found, nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// begin notes an exchange that was judged by a ruling. It fails when the rules have changed since.
func (c *connection) begin(each *exchange, by *ruling) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ruling != by {
		return false
	}
	c.exchanges[each] = struct{}{}
	return true
}

func (c *connection) finish(each *exchange) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.exchanges, each)
}

const echoesMost = 64

// sent remembers secrets that must not come back on this connection, and returns all of them.
func (c *connection) sent(echoes []change.Echo) []change.Echo {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, echo := range echoes {
		known := false
		for _, each := range c.echoes {
			known = known || bytes.Equal(each.Text, echo.Text)
		}
		if !known && len(c.echoes) < echoesMost {
			c.echoes = append(c.echoes, echo)
		}
	}
	return c.echoes[:len(c.echoes):len(c.echoes)]
}

// note counts a decision. A decision that is only observed counts as the action that it would have been.
func (c *connection) note(verdict *policy.Verdict, scheme, method, path string) {
	entry := seen.Entry{
		Action: verdict.Action, Host: c.host(), Port: c.to.Port, Scheme: scheme, Method: method, Path: path,
		Reason: verdict.Why(), Observed: verdict.Observed, Ceiling: verdict.Ceiling,
	}
	if verdict.Rule != nil {
		entry.Rule = &verdict.Rule.Index
	}
	c.sandbox.note(entry)
}

// host is the name that requests of this connection are for.
func (c *connection) host() string {
	if c.to.Name == "" && c.serverName != "" {
		return c.serverName
	}
	return c.to.Host()
}
