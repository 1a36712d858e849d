package models

import (
	"context"
	"slices"
	"sync"
	"time"
)

// Ledger knows how much of each budget may be spent here, and spends it. What may be spent was allotted by the owner, which
// counts it as gone from the budget until it is returned. It is safe for concurrent use.
type Ledger struct {
	News chan struct{} // holds one when there is something to tell the owner
	now  func() time.Time

	mu      sync.Mutex
	last    int64 // number of a message
	budgets map[string]*budget
	waiting []*waiter // in order; who comes first is served first
	letters []letter  // unsettled, in order
	isOwned bool
}

// Limits are the kinds of limits that a budget has.
type Limits struct{ Tokens, Money bool }

func (l Limits) and(other Limits) Limits {
	return Limits{l.Tokens || other.Tokens, l.Money || other.Money}
}

// budget is what is known of one. Kinds without a limit are not counted.
type budget struct {
	limits   Limits
	isKnown  bool      // something was allotted, so that its limits are known
	held     Amount    // allotted, and neither settled nor returned
	reserved Amount    // for requests that have not ended
	billed   Amount    // by bills that are not settled
	left     Amount    // what the owner can still allot
	back     Amount    // returned, but not settled
	until    time.Time // when all that is held is gone; zero: never
	day      int       // counts how often that was
	open     int       // requests that have not ended
	idle     time.Time // since when there is none
	need     *Need     // unanswered; nil: there is none
	isTold   bool      // the need is
}

// count changes what is held. Kinds without a limit are not counted.
func (b *budget) count(held Amount) {
	if !b.limits.Tokens {
		held.Tokens = 0
	}
	if !b.limits.Money {
		held.Nanos = 0
	}
	b.held = held
}

// isClear tells whether nothing is known of it that matters.
func (b *budget) isClear() bool {
	var zero Amount
	return b.open == 0 && b.need == nil && b.held == zero && b.reserved == zero && b.billed == zero && b.back == zero
}

func (b *budget) free() Amount { return b.held.minus(b.reserved).minus(b.billed) }

// unused may go back: what is free of the kinds that are counted.
func (b *budget) unused() Amount {
	free := b.free().positive()
	return Amount{min(free.Tokens, max(b.held.Tokens, 0)), min(free.Nanos, max(b.held.Nanos, 0))}
}

// covers tells whether this much more may be reserved.
func (b *budget) covers(wanted Amount) bool {
	free := b.free()
	return b.isKnown && (!b.limits.Tokens || free.Tokens >= wanted.Tokens) && (!b.limits.Money || free.Nanos >= wanted.Nanos)
}

// NewLedger has nothing to spend yet. Its messages are numbered from the time on, so that those of two processes differ.
func NewLedger(now func() time.Time) *Ledger {
	return &Ledger{News: make(chan struct{}, 1), now: now, last: now().UnixMicro(), budgets: map[string]*budget{}}
}

func (l *Ledger) budget(name string) *budget {
	found := l.budgets[name]
	if found == nil {
		found = &budget{idle: l.now()}
		l.budgets[name] = found
	}
	return found
}

func (l *Ledger) number() int64 {
	l.last++
	return l.last
}

func (l *Ledger) wake() {
	select {
	case l.News <- struct{}{}:
	default:
	}
}

// Hold is what one request has reserved of its budgets. It ends with Settle, which is called once.
type Hold struct {
	budgets []string
	amount  Amount
	at      time.Time
	shares  map[string]share
}

// share is what a request has reserved of one budget.
type share struct {
	day    int // of the budget: what it held on an earlier one is gone
	amount Amount
}

// add reserves more of a budget.
func (h *Hold) add(name string, of *budget, more Amount, now time.Time) {
	has, ok := h.shares[name]
	if !ok || has.day != of.day {
		has, h.at = share{day: of.day}, now
	}
	has.amount = has.amount.plus(more)
	h.shares[name] = has
	of.reserved = of.reserved.plus(more)
}

// in tells what is reserved of a budget now.
func (h *Hold) in(name string, of *budget) (Amount, bool) {
	has, ok := h.shares[name]
	return has.amount, ok && has.day == of.day
}

// waiter is a request that has not got what it wants yet.
type waiter struct {
	budgets []string
	wanted  Amount
	hold    *Hold
	since   int64         // the number of the last need before it came
	done    chan struct{} // closed when it is served or refused
	err     error
}

// Reserve takes an amount of all budgets at once, and waits for the owner to allot what is missing.
//
// A *SpentError: a budget does not have so much any more. ErrUnsettled: too many bills wait for the owner. Otherwise why
// the context has ended, or ErrNoOwner.
func (l *Ledger) Reserve(ctx context.Context, budgets []string, wanted Amount) (*Hold, error) {
	return l.take(ctx, &Hold{budgets: budgets, at: l.now(), shares: map[string]share{}}, wanted, true)
}

// Extend takes more for a request.
func (l *Ledger) Extend(ctx context.Context, hold *Hold, more Amount) error {
	_, err := l.take(ctx, hold, more, false)
	return err
}

func (l *Ledger) take(ctx context.Context, hold *Hold, wanted Amount, isNew bool) (*Hold, error) {
	l.mu.Lock()
	if len(l.letters) >= unsettledMost && isNew {
		l.mu.Unlock()
		return nil, ErrUnsettled
	}
	if isNew {
		for _, name := range hold.budgets {
			l.budget(name).open++
		}
	}
	one := &waiter{budgets: hold.budgets, wanted: wanted, hold: hold, since: l.last, done: make(chan struct{})}
	l.waiting = append(l.waiting, one)
	l.serve()
	l.mu.Unlock()
	err := one.wait(ctx)
	if err == nil {
		return hold, nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case one.isServed(): // meanwhile
		return hold, nil
	case one.err == nil && !l.isOwned:
		err = ErrNoOwner
	case one.err != nil:
		err = one.err
	}
	l.waiting = slices.DeleteFunc(l.waiting, func(each *waiter) bool { return each == one })
	if isNew {
		l.leave(hold.budgets)
	}
	return nil, err
}

// wait waits until the request is served, or its context ends.
func (w *waiter) wait(ctx context.Context) error {
	select {
	case <-w.done:
		return w.err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (w *waiter) isServed() bool {
	select {
	case <-w.done:
		return w.err == nil
	default:
		return false
	}
}

// serve gives the waiting requests what they want, in order, and asks for what is missing. The lock is held.
func (l *Ledger) serve() {
	still := l.waiting[:0]
	for _, each := range l.waiting {
		if !l.give(each) {
			still = append(still, each)
		}
	}
	clear(l.waiting[len(still):])
	l.waiting = still
	l.ask()
}

// give serves a request if all of its budgets cover it.
func (l *Ledger) give(one *waiter) bool {
	for _, name := range one.budgets {
		if !l.current(name).covers(one.wanted) {
			return false
		}
	}
	for _, name := range one.budgets {
		one.hold.add(name, l.budgets[name], one.wanted, l.now())
	}
	one.hold.amount = one.hold.amount.plus(one.wanted)
	close(one.done)
	return true
}

// current is a budget, without what it had for a day that is over.
func (l *Ledger) current(name string) *budget {
	found := l.budget(name)
	if !found.until.IsZero() && !l.now().Before(found.until) {
		*found = budget{limits: found.limits, open: found.open, idle: found.idle, need: found.need, isTold: found.isTold, day: found.day + 1}
	}
	return found
}

// ask asks the owner for what the waiting requests lack. One need of each budget is open at a time.
func (l *Ledger) ask() {
	lacks := map[string]Amount{}
	for _, each := range l.waiting {
		for _, name := range each.budgets {
			lacks[name] = lacks[name].plus(each.wanted)
		}
	}
	for name, wanted := range lacks {
		each := l.budgets[name]
		if each.need != nil || each.covers(wanted) {
			continue
		}
		missing := wanted.minus(each.free()).positive()
		if each.isKnown && !each.limits.Tokens {
			missing.Tokens = 0
		}
		if each.isKnown && !each.limits.Money {
			missing.Nanos = 0
		}
		each.need, each.isTold = &Need{ID: l.number(), Budget: name, Amount: missing}, false
		l.wake()
	}
}

// Settle ends a request: it has used so much. The bill goes to the owner; nil: there is none, as nothing was sent.
func (l *Ledger) Settle(hold *Hold, used Amount, bill *Bill) {
	l.mu.Lock()
	defer l.mu.Unlock()
	one := letter{id: l.last + 1, bill: bill, amount: used, days: map[string]int{}}
	for _, name := range hold.budgets {
		each := l.current(name)
		reserved, isToday := hold.in(name, each)
		if !isToday {
			continue
		}
		one.days[name] = each.day
		each.reserved = each.reserved.minus(reserved)
		if bill != nil {
			each.billed = each.billed.plus(used)
		}
	}
	if bill != nil {
		bill.At, bill.Budgets, bill.ID = hold.at.Unix(), hold.budgets, l.number()
		l.letters = append(l.letters, one)
		l.wake()
	}
	l.leave(hold.budgets)
	l.serve()
}

// leave counts a request that has ended.
func (l *Ledger) leave(budgets []string) {
	for _, name := range budgets {
		each := l.budgets[name]
		if each.open--; each.open == 0 {
			each.idle = l.now()
		}
	}
}

// Left is what the smallest of a request's budgets has left, with what it holds itself, and which kinds are limited.
func (l *Ledger) Left(hold *Hold) (Amount, Limits) { return l.left(hold.budgets, hold.amount) }

// LeftOf is what the smallest of some budgets has left, and which kinds are limited.
func (l *Ledger) LeftOf(budgets []string) (Amount, Limits) { return l.left(budgets, Amount{}) }

func (l *Ledger) left(budgets []string, held Amount) (Amount, Limits) {
	l.mu.Lock()
	defer l.mu.Unlock()
	least, limits := Amount{most, most}, Limits{}
	for _, name := range budgets {
		each := l.budget(name)
		has := each.free().plus(each.left).plus(held).positive()
		if limits = limits.and(each.limits); each.limits.Tokens {
			least.Tokens = min(least.Tokens, has.Tokens)
		}
		if each.limits.Money {
			least.Nanos = min(least.Nanos, has.Nanos)
		}
	}
	return least, limits
}
