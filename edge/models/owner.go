package models

import (
	"errors"
	"fmt"
	"slices"
	"time"
)

const (
	// More bills are not kept: an owner that does not take them may be gone for long.
	unsettledMost = 1000
	// What is unused goes back so long after the last request.
	returnAfter = 10 * time.Second
)

// Errors of reserving. The texts are for the guest.
var (
	ErrUnsettled = errors.New("too many bills of earlier requests are not written down yet")
	ErrNoOwner   = errors.New("what was allotted is used up, and the supervisor that could allot more does not run")
)

// SpentError says that a budget does not have what a request may cost.
type SpentError struct {
	Budget string
	Left   Amount // of the budget
	Limits Limits
}

// Error names the budget.
func (e *SpentError) Error() string {
	return fmt.Sprintf("the budget %s does not have what this request may cost at most", e.Budget)
}

// Need asks the owner to allot at least so much more.
type Need struct {
	ID     int64  `json:"id"`
	Budget string `json:"budget"`
	Amount
}

// Return gives back what was allotted and is not used.
type Return struct {
	ID     int64  `json:"id"`
	Budget string `json:"budget"`
	Amount
}

// How a request ends.
const (
	Whole   = "whole"
	Cut     = "cut"     // by the gateway, when its budgets had no more
	Broken  = "broken"  // by the guest or by the provider
	Refused = "refused" // by the provider
)

// Bill is what a request has cost.
type Bill struct {
	ID        int64    `json:"id"`
	At        int64    `json:"at"` // when it was reserved, in seconds since 1970
	Sandbox   string   `json:"sandbox"`
	Asked     string   `json:"asked"`
	Provider  string   `json:"provider"`
	Model     string   `json:"model"`
	Usage     Usage    `json:"usage"`
	Nanos     int64    `json:"nanos"`
	Status    int      `json:"status"`
	Ending    string   `json:"ending"`
	Estimated bool     `json:"estimated"`
	Budgets   []string `json:"budgets"`
}

// letter is a bill or a return that waits for the owner to write it down.
type letter struct {
	id     int64
	bill   *Bill   // nil: it is a return
	back   *Return // nil: it is a bill
	amount Amount
	days   map[string]int // of its budgets
	isTold bool
}

// Allotment adds to what may be spent of a budget, and answers a need.
type Allotment struct {
	Need   int64
	Budget string
	Amount Amount    // below zero: that kind has no limit
	Until  time.Time // zero: for good
	Over   bool      // not all that was needed is left
	Left   Amount    // what can still be allotted
	Limits Limits
}

// Allot takes an allotment.
func (l *Ledger) Allot(given Allotment) {
	l.mu.Lock()
	defer l.mu.Unlock()
	each := l.current(given.Budget)
	each.isKnown, each.limits, each.until = true, given.Limits, given.Until
	each.left = given.Left.positive()
	each.count(each.held.plus(given.Amount.positive()))
	answers := each.need != nil && each.need.ID == given.Need
	if answers {
		each.need = nil
	}
	// Who waited when the owner was asked gets what there is. Nobody else is refused by this answer.
	still := l.waiting[:0]
	for _, one := range l.waiting {
		switch {
		case l.give(one):
		case answers && given.Over && one.since < given.Need && one.wants(given.Budget) && !each.covers(one.wanted):
			left := each.free().plus(each.left).plus(one.hold.amount).positive()
			one.err = &SpentError{Budget: given.Budget, Left: left, Limits: each.limits}
			close(one.done)
		default:
			still = append(still, one)
		}
	}
	clear(l.waiting[len(still):])
	l.waiting = still
	l.ask()
}

func (w *waiter) wants(budget string) bool { return slices.Contains(w.budgets, budget) }

// Settled says that a bill, or a return, is written down.
func (l *Ledger) Settled(id int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	at := slices.IndexFunc(l.letters, func(each letter) bool { return each.id == id })
	if at < 0 {
		return
	}
	one := l.letters[at]
	l.letters = slices.Delete(l.letters, at, at+1)
	for name, day := range one.days {
		each := l.current(name)
		switch {
		case each.day != day:
		case one.bill == nil:
			each.back = each.back.minus(one.amount)
		default:
			// The owner counts what was used beyond it, and nothing below zero stays here.
			each.count(each.held.minus(one.amount).positive())
			each.billed = each.billed.minus(one.amount)
		}
	}
}

// giveBack returns what is not used of a budget. The lock is held.
func (l *Ledger) giveBack(name string, from *budget) {
	unused := from.unused()
	if unused == (Amount{}) {
		return
	}
	from.held, from.back = from.held.minus(unused), from.back.plus(unused)
	back := &Return{ID: l.number(), Budget: name, Amount: unused}
	l.letters = append(l.letters, letter{id: back.ID, back: back, amount: unused, days: map[string]int{name: from.day}})
	l.wake()
}

// Tidy returns what is not used of budgets without requests, and forgets those of which nothing is open. It is called each
// second or so.
func (l *Ledger) Tidy() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for name := range l.budgets {
		each := l.current(name)
		if each.open > 0 || l.now().Sub(each.idle) < returnAfter {
			continue
		}
		l.giveBack(name, each)
		if each.isClear() {
			delete(l.budgets, name)
		}
	}
}

// GiveBack returns all that no open request has reserved, without the wait for further requests: the owner ends.
func (l *Ledger) GiveBack() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, name := range sorted(l.budgets) {
		l.giveBack(name, l.current(name))
	}
}

// Take gives what the owner was not told yet: each Need, and each Bill and Return in the order of their numbers.
func (l *Ledger) Take() []any {
	l.mu.Lock()
	defer l.mu.Unlock()
	var told []any
	l.isOwned = true
	for i := range l.letters {
		switch each := &l.letters[i]; {
		case each.isTold:
			continue
		case each.bill != nil:
			told = append(told, *each.bill)
		default:
			told = append(told, *each.back)
		}
		l.letters[i].isTold = true
	}
	for _, name := range sorted(l.budgets) {
		if each := l.budgets[name]; each.need != nil && !each.isTold {
			each.isTold = true
			told = append(told, *each.need)
		}
	}
	return told
}

// Lose says that there is no owner now.
func (l *Ledger) Lose() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.isOwned = false
}

// Greet has another owner told of everything again, and gives what is held of each budget, with what is in messages that are
// not settled.
func (l *Ledger) Greet() map[string]Amount {
	l.mu.Lock()
	defer l.mu.Unlock()
	holds := map[string]Amount{}
	for name := range l.budgets {
		each := l.current(name)
		each.isTold = false
		if held := each.held.plus(each.back).positive(); held != (Amount{}) {
			holds[name] = held
		}
	}
	for i := range l.letters {
		l.letters[i].isTold = false
	}
	l.wake()
	return holds
}
