package serve

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"slices"
	"sync"
	"time"

	"atoll/edge/control"
	"atoll/policy"
)

const (
	// How many requests of a sandbox are held at once until somebody decides.
	asksMost = 64
	// How many ends of asks wait for an owner that does not read. The oldest are lost.
	endsMost = 256
)

// asks are the requests of one sandbox that are held until somebody outside decides.
type asks struct {
	sandbox string
	news    chan struct{} // somebody has to be told

	mu     sync.Mutex
	open   []*ask // in the order in which they came
	held   int    // requests, also those whose body is still being read
	ended  []control.AskEnd
	grants grants
	rules  map[string]int // the indices of the rules that ask in the current policy, by their keys
	closed bool
}

// sameness is what equal requests have in common.
type sameness struct{ digest, rule string }

// ask is one group of equal requests. The lock of its asks guards it.
type ask struct {
	same        sameness
	granted     granted
	card        control.Ask
	waiting     []*waiter // in the order in which they came, at least one
	ending      *time.Timer
	isTold      bool // the owner was
	isRecounted bool // its number has changed since
	passed      int
	refused     int
}

// waiter is a request in a group.
type waiter struct {
	asks    *asks
	ask     *ask
	ctx     context.Context
	body    []byte
	decided chan decision // holds one
	isOver  bool          // it has left, or the ask has ended
}

// decision ends the wait of one request.
type decision struct {
	passes bool
	reason string   // of what the edge notes
	why    *refusal // without its rule; nil: it passes
}

// reserve takes a place for a request. It is false if there is none left.
func (a *asks) reserve() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.held >= asksMost {
		return false
	}
	a.held++
	return true
}

// free gives back a place that was reserved and not used.
func (a *asks) free() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.held--
}

// join has a request wait in its reserved place, with equal ones if there are any.
func (a *asks) join(ctx context.Context, one *ask, body []byte, deadline time.Duration) *waiter {
	joining := &waiter{asks: a, ask: one, ctx: ctx, body: body, decided: make(chan decision, 1)}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.closed {
		a.held--
		joining.isOver = true
		joining.decided <- isGone
		return joining
	}
	at := slices.IndexFunc(a.open, func(each *ask) bool { return each.same == one.same })
	if at >= 0 {
		one = a.open[at]
		one.isRecounted = true
	} else {
		one.card.Ask = newAskID()
		one.ending = time.AfterFunc(deadline, func() { a.expire(one, deadline) })
		a.open = append(a.open, one)
		wake(a.news)
	}
	joining.ask = one
	one.waiting = append(one.waiting, joining)
	return joining
}

func newAskID() string {
	var id [8]byte
	rand.Read(id[:])
	return hex.EncodeToString(id[:])
}

// leave has a request wait no more, because its guest is gone or because the policy decides instead. It does nothing if
// the request was decided about.
func (w *waiter) leave(outcome string, passes bool) {
	a := w.asks
	a.mu.Lock()
	defer a.mu.Unlock()
	if w.isOver {
		return
	}
	w.isOver = true
	a.held--
	one := w.ask
	one.waiting = slices.DeleteFunc(one.waiting, func(each *waiter) bool { return each == w })
	one.isRecounted = true
	if outcome == control.OutcomeChanged {
		one.count(passes)
	}
	if len(one.waiting) == 0 {
		a.end(one, outcome)
	}
}

func (o *ask) count(passes bool) {
	if passes {
		o.passed++
	} else {
		o.refused++
	}
}

// decide ends an ask. The lock is held.
func (a *asks) decide(one *ask, outcome string, of func(*waiter) decision) {
	for _, each := range one.waiting {
		found := of(each)
		one.count(found.passes)
		each.isOver = true
		each.decided <- found
	}
	a.held -= len(one.waiting)
	one.waiting = nil
	a.end(one, outcome)
}

// end forgets an ask without requests. The lock is held.
func (a *asks) end(one *ask, outcome string) {
	one.ending.Stop()
	a.open = slices.DeleteFunc(a.open, func(each *ask) bool { return each == one })
	if !one.isTold && !one.card.Again {
		return // nobody knows of it
	}
	if len(a.ended) >= endsMost {
		a.ended = slices.Delete(a.ended, 0, 1)
	}
	a.ended = append(a.ended, control.AskEnd{
		Op: "asked", Sandbox: a.sandbox, Ask: one.card.Ask, Outcome: outcome, Passed: one.passed, Refused: one.refused,
	})
	wake(a.news)
}

func (a *asks) expire(one *ask, deadline time.Duration) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if slices.Contains(a.open, one) {
		a.decide(one, control.OutcomeExpired, func(*waiter) decision { return expired(deadline) })
	}
}

// close ends all asks, and returns what an owner has to be told of them. Nothing is asked afterwards.
func (a *asks) close() []control.AskEnd {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.closed = true
	for len(a.open) > 0 {
		a.decide(a.open[0], control.OutcomeGone, func(*waiter) decision { return isGone })
	}
	ended := a.ended
	a.ended = nil
	return ended
}

// greet has everything be told again, to another owner.
func (a *asks) greet() {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, each := range a.open {
		each.card.Again = each.card.Again || each.isTold
		each.isTold = false
	}
}

// keep takes the rules of another version of the policy. It forgets grants by rules that are gone.
func (a *asks) keep(rules []*policy.Rule) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.rules = map[string]int{}
	for _, rule := range rules {
		if rule.Action == policy.Ask {
			a.rules[rule.Key] = rule.Index
		}
	}
	for what := range a.grants {
		if _, ok := a.rules[what.rule]; !ok {
			delete(a.grants, what)
		}
	}
}

// untold are the asks that the owner was not told of. One by a rule that is gone ends soon.
func (a *asks) untold() []*ask {
	a.mu.Lock()
	defer a.mu.Unlock()
	var found []*ask
	for _, each := range a.open {
		if _, ok := a.rules[each.same.rule]; ok && !each.isTold {
			found = append(found, each)
		}
	}
	return found
}

// tell gives an ask as it is told, and the body of its requests. It is false if the ask has ended meanwhile, or ends soon.
func (a *asks) tell(one *ask) (control.Ask, []byte, bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if _, ok := a.rules[one.same.rule]; !ok || len(one.waiting) == 0 {
		return control.Ask{}, nil, false
	}
	one.isTold, one.isRecounted = true, false
	card := one.card
	card.Count = len(one.waiting)
	card.Rule = a.rules[one.same.rule]
	return card, one.waiting[0].body, true
}

// takeEnds gives the ends that the owner was not told of.
func (a *asks) takeEnds() []control.AskEnd {
	a.mu.Lock()
	defer a.mu.Unlock()
	ended := a.ended
	a.ended = nil
	return ended
}

// takeCounts gives the numbers of requests that have changed since they were told.
func (a *asks) takeCounts() []control.AskCount {
	a.mu.Lock()
	defer a.mu.Unlock()
	var counts []control.AskCount
	for _, each := range a.open {
		if each.isTold && each.isRecounted {
			each.isRecounted = false
			counts = append(counts, control.AskCount{
				Op: "ask_count", Sandbox: a.sandbox, Ask: each.card.Ask, Count: len(each.waiting),
			})
		}
	}
	return counts
}
