package usage

import (
	"errors"
	"sync"
	"testing"
)

func woken(waiting <-chan struct{}) bool {
	select {
	case <-waiting:
		return true
	default:
		return false
	}
}

func await(t *testing.T, r *room, mark, each int64, used uint64) <-chan struct{} {
	t.Helper()
	waiting, err := r.Await(mark, each, func() (uint64, error) { return used, nil })
	if err != nil {
		t.Fatal(err)
	}
	return waiting
}

func TestWhoWaitsWakesOnceMoreThanTheMarkMayBeUsed(t *testing.T) {
	r := newRoom()
	r.Grow(1 << 40) // Nobody waits.
	waiting := await(t, r, 100, 0, 60)
	r.Grow(40)
	if woken(waiting) {
		t.Error("it wakes at the mark")
	}
	r.Grow(1)
	if !woken(waiting) {
		t.Error("it sleeps on")
	}
	r.Grow(1) // Nobody waits any more.
	if waiting := await(t, r, 100, 0, 101); waiting != nil {
		t.Error("it waits for what has been")
	}
	if waiting := await(t, r, 100, 0, 100); waiting == nil || woken(waiting) {
		t.Error("it does not wait")
	}
}

func TestTheOthersSeeWhenWhoWasWokenWaitsAgain(t *testing.T) {
	r := newRoom()
	if r.Unseen() != nil {
		t.Error("nobody was woken")
	}
	await(t, r, 100, 0, 60)
	await(t, r, 100, 0, 60) // The first one is woken by the second, and not by what has grown.
	if r.Unseen() != nil {
		t.Error("nothing has grown")
	}
	r.Grow(41)
	unseen := r.Unseen()
	if unseen == nil || woken(unseen) {
		t.Fatal("what has grown was seen already")
	}
	await(t, r, 200, 0, 101)
	if !woken(unseen) || r.Unseen() != nil {
		t.Error("what has grown was not seen")
	}
	if await(t, r, 100, 0, 101) != nil || r.Unseen() != nil {
		t.Error("who cannot wait keeps the others")
	}
}

func TestAProcessCountsAsWhatItTakesBeside(t *testing.T) {
	r := newRoom()
	waiting := await(t, r, 100, 30, 40)
	r.AddProcess()
	r.AddProcess()
	if woken(waiting) {
		t.Error("it wakes at the mark")
	}
	r.AddProcess()
	if !woken(waiting) {
		t.Error("it sleeps on")
	}
}

func TestOnlyTheLastOneWaits(t *testing.T) {
	r := newRoom()
	first := await(t, r, 100, 0, 0)
	second := await(t, r, 50, 0, 0)
	if !woken(first) || woken(second) {
		t.Error("the first one waits on, or the second does not")
	}
	failed := errors.New("failed")
	if _, err := r.Await(50, 0, func() (uint64, error) { return 0, failed }); err != failed || !woken(second) {
		t.Errorf("%v, and the second one waits on: %v", err, !woken(second))
	}
	r.Grow(1 << 40)
}

func TestNothingThatGrowsWhileOneBeginsToWaitIsMissed(t *testing.T) {
	for range 2000 {
		r := newRoom()
		var used, most = make(chan uint64, 1), uint64(0)
		used <- 0
		var all sync.WaitGroup
		for range 4 {
			all.Go(func() {
				most := <-used
				used <- most + 25
				r.Grow(25)
			})
		}
		waiting, _ := r.Await(99, 0, func() (uint64, error) {
			most = <-used
			used <- most
			return most, nil
		})
		all.Wait()
		if !woken(waiting) {
			t.Fatalf("it sleeps although 100 are used; %d were when it began", most)
		}
	}
}
