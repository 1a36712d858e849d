package serve

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"atoll/edge/change"
	"atoll/edge/control"
	"atoll/edge/seen"
	"atoll/policy"
)

// ruling is the policy for one connection: the rules that fit its destination.
type ruling struct {
	*set
	kept policy.Kept
	// Of the team's ceiling; nil: it has none.
	ceiling *policy.Kept
}

// judges are all rules that decide here.
func (r *ruling) judges() []policy.Kept {
	if r.ceiling == nil {
		return []policy.Kept{r.kept}
	}
	return []policy.Kept{r.kept, *r.ceiling}
}

// judge decides on a request that came, and that would be sent as the second one.
func (r *ruling) judge(came, sent *policy.Request) policy.Verdict {
	return r.bound(policy.Judge(r.kept, came, r.observe), sent)
}

// bound has the ceiling decide on what would be sent.
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
	id      string
	to      policy.Destination
	guest   *guestEnd
	ctx     context.Context
	cancel  context.CancelCauseFunc
	lingers atomic.Bool // its guest may still be sending when it ends

	// Set before requests come, and not changed then.
	scheme      string
	serverName  string
	misdirected string

	mu        sync.Mutex
	ruling    *ruling       // nil: rules have to come after a change of the policy
	changed   chan struct{} // closed when ruling is set
	exchanges map[*exchange]struct{}
	echoes    []change.Echo
}

// end closes the connection and all that belongs to it.
func (c *connection) end(cause error) {
	c.cancel(cause)
	c.guest.Close()
	c.sandbox.drop(c)
}

// How long the supervisor has to reset a connection before its end is all that the guest sees of it.
const resetMost = 5 * time.Second

// reset ends the connection so that both sides see that it was broken off. Only the supervisor can do that: it gets the
// guest's end to close first.
func (c *connection) reset(cause error) {
	if c.guest.resetting.Swap(true) {
		return
	}
	c.cancel(cause)
	told := c.sandbox.edge.supervisor.Send(control.Reset{Op: "reset", Sandbox: c.sandbox.id, Connection: c.id})
	go func() {
		if told == nil {
			// Until the supervisor has closed it. What is cut meanwhile sets deadlines of its own.
			closing := time.AfterFunc(resetMost, func() { c.guest.Conn.Close() })
			defer closing.Stop()
			for err := os.ErrDeadlineExceeded; errors.Is(err, os.ErrDeadlineExceeded); {
				c.guest.SetReadDeadline(time.Time{})
				_, err = io.Copy(io.Discard, c.guest)
			}
		}
		c.guest.Conn.Close()
		c.sandbox.drop(c)
	}()
}

func (c *connection) stale() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ruling != nil {
		c.ruling = nil
		c.changed = make(chan struct{})
	}
}

func (c *connection) isStale() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.ruling == nil
}

// setRules takes the rules that fit the destination, as indices of a version of the policy and of the ceiling in it, and
// judges again what is going on. Rules of another version than the newest are not taken: the connection waits for those of
// that one.
func (c *connection) setRules(version int64, indices, ofCeiling []int) error {
	current := c.sandbox.current()
	if current.version != version {
		c.stale()
		c.cutIfStale()
		return fmt.Errorf("connection %s: its rules are of version %d, not %d", c.id, version, current.version)
	}
	next := &ruling{set: current}
	kept, fault := c.fitting(current.rules, indices)
	next.kept = policy.Keep(kept)
	if current.ceiling != nil {
		above, missing := c.fitting(current.ceiling, ofCeiling)
		ceiling := policy.Keep(above)
		next.ceiling, fault = &ceiling, errors.Join(fault, missing)
	}
	c.mu.Lock()
	waited := c.ruling == nil
	c.ruling = next
	if waited {
		close(c.changed)
	}
	going := make([]*exchange, 0, len(c.exchanges))
	for each := range c.exchanges {
		going = append(going, each)
	}
	c.mu.Unlock()
	for _, each := range going {
		each.judgeAgain(next)
	}
	return fault
}

// fitting are the rules with these indices. If one is not for the destination, there is none, so that nothing is allowed.
func (c *connection) fitting(rules []*policy.Rule, indices []int) ([]*policy.Rule, error) {
	var kept []*policy.Rule
	for _, index := range indices {
		if index < 0 || index >= len(rules) || !rules[index].Fits(c.to) {
			return nil, fmt.Errorf("connection %s: there is no rule %d for it, so nothing is allowed", c.id, index)
		}
		kept = append(kept, rules[index])
	}
	return kept, nil
}

// cutIfStale ends the connection if its rules do not come soon.
func (c *connection) cutIfStale() {
	time.AfterFunc(staleMost, func() {
		if c.isStale() {
			c.reset(errors.New("no rules came for it after a change of the policy"))
		}
	})
}

var errStale = errors.New("the policy has just changed, and the rules of this connection have not come")

// current waits for the rules if they are being changed.
func (c *connection) current(ctx context.Context) (*ruling, error) {
	timer := time.NewTimer(staleMost)
	defer timer.Stop()
	for {
		c.mu.Lock()
		found, changed := c.ruling, c.changed
		c.mu.Unlock()
		if found != nil {
			return found, nil
		}
		select {
		case <-changed:
		case <-timer.C:
			return nil, errStale
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

// sent remembers what must not come back on this connection, and returns all of it.
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

// note counts a decision. What is observed only is told as what it would have been.
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
