package models

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"testing"
	"time"
)

// clock is a test's.
type clock struct {
	mu sync.Mutex
	at time.Time
}

func (c *clock) now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.at
}

func (c *clock) pass(by time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.at = c.at.Add(by)
}

// keeper is an owner with budgets.
type keeper struct {
	ledger   *Ledger
	limits   map[string]Amount
	spent    map[string]Amount
	allotted map[string]Amount
	chunk    Amount
	last     int64 // bill that it has written down
}

func newKeeper(ledger *Ledger, limits map[string]Amount) *keeper {
	return &keeper{
		ledger: ledger, limits: limits, spent: map[string]Amount{}, allotted: map[string]Amount{}, chunk: Amount{50, 500},
	}
}

func (k *keeper) left(name string) Amount {
	return k.limits[name].minus(k.spent[name]).minus(k.allotted[name]).positive()
}

// work does all that the ledger wants now.
func (k *keeper) work() {
	for _, told := range k.ledger.Take() {
		switch each := told.(type) {
		case Bill:
			k.bill(each)
			k.ledger.Settled(each.ID)
		case Return:
			k.allotted[each.Budget] = k.allotted[each.Budget].minus(each.Amount)
			k.ledger.Settled(each.ID)
		case Need:
			k.allot(each)
		}
	}
}

func (k *keeper) bill(bill Bill) {
	used := Amount{bill.Usage.Tokens(), bill.Nanos}
	isNew := bill.ID > k.last
	k.last = max(k.last, bill.ID)
	for _, name := range bill.Budgets {
		if isNew {
			k.spent[name] = k.spent[name].plus(used)
		}
		k.allotted[name] = k.allotted[name].minus(used).positive()
	}
}

func (k *keeper) allot(need Need) {
	left := k.left(need.Budget)
	given := Amount{min(left.Tokens, max(need.Tokens, k.chunk.Tokens)), min(left.Nanos, max(need.Nanos, k.chunk.Nanos))}
	k.allotted[need.Budget] = k.allotted[need.Budget].plus(given)
	k.ledger.Allot(Allotment{
		Need: need.ID, Budget: need.Budget, Amount: given, Left: k.left(need.Budget), Limits: Limits{true, true},
		Over: left.Tokens < need.Tokens || left.Nanos < need.Nanos,
	})
}

// settle ends a request that has used an amount.
func settle(ledger *Ledger, hold *Hold, used Amount) {
	ledger.Settle(hold, used, &Bill{Usage: Usage{Output: used.Tokens}, Nanos: used.Nanos})
}

// serve works until the context ends.
func (k *keeper) serve(ctx context.Context) {
	for {
		select {
		case <-k.ledger.News:
			k.work()
		case <-ctx.Done():
			return
		}
	}
}

func TestARequestReservesOfAllItsBudgetsOrOfNone(t *testing.T) {
	time0 := &clock{at: time.Unix(1000, 0)}
	ledger := NewLedger(time0.now)
	keeper := newKeeper(ledger, map[string]Amount{"home": {1000, 10_000}, "sandbox:a": {100, 10_000}})
	ctx, stop := context.WithCancel(t.Context())
	var working sync.WaitGroup
	working.Go(func() { keeper.serve(ctx) })
	both := []string{"sandbox:a", "home"}
	first, err := ledger.Reserve(ctx, both, Amount{60, 600})
	if err != nil {
		t.Fatal(err)
	}
	var spent *SpentError
	if _, err := ledger.Reserve(ctx, both, Amount{60, 600}); !errors.As(err, &spent) || spent.Budget != "sandbox:a" || spent.Left.Tokens != 40 {
		t.Fatal(err, spent)
	}
	if left, limits := ledger.Left(first); left.Tokens != 100 || limits != (Limits{true, true}) {
		t.Error("left is", left, limits)
	}
	if err := ledger.Extend(ctx, first, Amount{30, 300}); err != nil {
		t.Error(err)
	}
	if err := ledger.Extend(ctx, first, Amount{30, 300}); !errors.As(err, &spent) {
		t.Error("it was extended beyond the budget:", err)
	}
	ledger.GiveBack() // of what is reserved nothing goes back
	settle(ledger, first, Amount{50, 500})
	second, err := ledger.Reserve(ctx, both, Amount{50, 500})
	if err != nil {
		t.Fatal(err)
	}
	ledger.Settle(second, Amount{}, nil)
	stop()
	working.Wait()
	time0.pass(11 * time.Second)
	ledger.Tidy()
	keeper.work()
	for name, want := range map[string]Amount{"home": {50, 500}, "sandbox:a": {50, 500}} {
		if keeper.spent[name] != want || keeper.allotted[name] != (Amount{}) {
			t.Errorf("of %s %v is spent, and %v is not back", name, keeper.spent[name], keeper.allotted[name])
		}
	}
	ledger.Tidy()
	if len(ledger.budgets)+len(ledger.letters)+len(ledger.waiting) != 0 {
		t.Errorf("it keeps %v", ledger.budgets)
	}
}

func TestWithoutAnOwnerOnlyWhatIsAllottedIsSpent(t *testing.T) {
	ledger := NewLedger(time.Now)
	names := []string{"home"}
	ledger.Allot(Allotment{Budget: "home", Amount: Amount{100, -1}, Limits: Limits{Tokens: true}})
	hold, err := ledger.Reserve(t.Context(), names, Amount{80, 1 << 40})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	if _, err := ledger.Reserve(ctx, names, Amount{30, 0}); !errors.Is(err, ErrNoOwner) {
		t.Error(err)
	}
	ledger.Settle(hold, Amount{10, 100}, &Bill{Sandbox: "a"})
	if holds := ledger.Greet(); holds["home"] != (Amount{100, 0}) {
		t.Error("with a bill that is not settled it holds", holds)
	}
	told := ledger.Take()
	bill, ok := told[0].(Bill)
	if !ok || len(told) != 2 || bill.Budgets[0] != "home" {
		t.Errorf("the next owner is told %+v", told)
	}
	ledger.Settled(bill.ID)
	ledger.Settled(bill.ID)
	if holds := ledger.Greet(); holds["home"] != (Amount{90, 0}) {
		t.Error("without it it holds", holds)
	}
}

func TestTooManyUnsettledBillsStopNewRequests(t *testing.T) {
	ledger := NewLedger(time.Now)
	for range unsettledMost {
		hold, err := ledger.Reserve(t.Context(), nil, Amount{})
		if err != nil {
			t.Fatal(err)
		}
		ledger.Settle(hold, Amount{1, 1}, &Bill{})
	}
	if _, err := ledger.Reserve(t.Context(), nil, Amount{}); !errors.Is(err, ErrUnsettled) {
		t.Error(err)
	}
}

func TestWhatWasAllottedForADayIsGoneAtItsEnd(t *testing.T) {
	time0 := &clock{at: time.Unix(1000, 0)}
	ledger := NewLedger(time0.now)
	ledger.Allot(Allotment{Budget: "a", Amount: Amount{100, 100}, Until: time.Unix(1005, 0), Limits: Limits{true, true}})
	hold, err := ledger.Reserve(t.Context(), []string{"a"}, Amount{30, 30})
	if err != nil {
		t.Fatal(err)
	}
	time0.pass(6 * time.Second)
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	if _, err := ledger.Reserve(ctx, []string{"a"}, Amount{1, 1}); err == nil {
		t.Error("it is spent on the next day")
	}
	need := ledger.Take()[0].(Need)
	ledger.Allot(Allotment{Need: need.ID, Budget: "a", Amount: Amount{9, 9}, Until: time.Unix(2000, 0), Limits: Limits{true, true}})
	settle(ledger, hold, Amount{20, 20})
	told := ledger.Take()
	if bill, ok := told[0].(Bill); !ok || len(told) != 1 || bill.At != 1000 {
		t.Errorf("it tells %+v", told)
	}
	ledger.Settled(told[0].(Bill).ID)
	if holds := ledger.Greet(); holds["a"] != (Amount{9, 9}) {
		t.Error("it holds", holds)
	}
}

// Whatever happens in whatever order, no more is spent than the budgets have, and in the end nothing is reserved.
func TestNoInterleavingOverspends(t *testing.T) {
	for seed := range uint64(30) {
		random := rand.New(rand.NewPCG(seed, 1))
		time0 := &clock{at: time.Unix(1000, 0)}
		ledger := NewLedger(time0.now)
		limits := map[string]Amount{
			"home": {random.Int64N(3000), random.Int64N(30_000)}, "team:a": {random.Int64N(2000), random.Int64N(20_000)},
			"sandbox:a": {random.Int64N(1000), random.Int64N(10_000)}, "sandbox:b": {random.Int64N(1000), random.Int64N(10_000)},
		}
		keeper := newKeeper(ledger, limits)
		sets := [][]string{{"sandbox:a", "team:a", "home"}, {"sandbox:b", "team:a", "home"}, {"home"}, {"sandbox:b"}}
		ctx, stop := context.WithCancel(t.Context())
		var requests sync.WaitGroup
		for i := range 60 {
			budgets, pause := sets[random.IntN(len(sets))], time.Duration(random.IntN(300))*time.Microsecond
			wanted := Amount{1 + random.Int64N(80), 1 + random.Int64N(800)}
			used := Amount{random.Int64N(wanted.Tokens + 1), random.Int64N(wanted.Nanos + 1)}
			isCancelled, isUnsent := random.IntN(5) == 0, random.IntN(5) == 0
			requests.Go(func() {
				of := ctx
				if isCancelled {
					var cancel context.CancelFunc
					of, cancel = context.WithTimeout(ctx, pause)
					defer cancel()
				}
				time.Sleep(pause * time.Duration(i%3))
				hold, err := ledger.Reserve(of, budgets, wanted)
				if err != nil {
					return
				}
				time.Sleep(pause)
				if ledger.Extend(of, hold, Amount{5, 50}) == nil {
					used = used.plus(Amount{5, 50})
				}
				if isUnsent {
					ledger.Settle(hold, Amount{}, nil)
					return
				}
				settle(ledger, hold, used)
			})
		}
		over := make(chan struct{})
		go func() { requests.Wait(); close(over) }()
		for isOver := false; !isOver; {
			select {
			case <-ledger.News:
				if random.IntN(6) == 0 { // a supervisor that was killed: the next one hears what is held
					for name, held := range ledger.Greet() {
						keeper.allotted[name] = held
					}
				}
				keeper.work()
			case <-time.After(time.Millisecond):
				ledger.Tidy()
			case <-over:
				isOver = true
			}
		}
		keeper.work()
		for name, limit := range limits {
			if spent := keeper.spent[name]; spent.Tokens > limit.Tokens || spent.Nanos > limit.Nanos {
				t.Errorf("seed %d: %v of %v of %s are spent", seed, spent, limit, name)
			}
		}
		time0.pass(time.Minute)
		ledger.Tidy()
		keeper.work()
		for name, allotted := range keeper.allotted {
			if allotted != (Amount{}) {
				t.Errorf("seed %d: of %s %v is not back", seed, name, allotted)
			}
		}
		if ledger.Tidy(); len(ledger.budgets) != 0 || len(ledger.waiting) != 0 {
			t.Errorf("seed %d: it keeps %v", seed, ledger.budgets)
		}
		stop()
	}
}
