package kernel

import (
	"math"
	"testing"
	"time"
)

// pass has the load see so much time go by.
func (l *loadAverage) pass(d time.Duration) {
	l.since = l.since.Add(-d)
	l.catchUp()
}

func TestTheLoadNearsHowManyTasksRun(t *testing.T) {
	var l loadAverage
	l.observe(4)
	if l.averages != [3]float64{} {
		t.Errorf("it begins at %v", l.averages)
	}
	l.pass(time.Minute)
	share := 1 - math.Exp(-1)
	if math.Abs(l.averages[0]-4*share) > 0.01 {
		t.Errorf("after a minute the first is %v, want %v", l.averages[0], 4*share)
	}
	if !(l.averages[0] > l.averages[1] && l.averages[1] > l.averages[2] && l.averages[2] > 0) {
		t.Errorf("the longer, the slower: %v", l.averages)
	}
	l.pass(24 * time.Hour)
	for _, average := range l.averages {
		if math.Abs(average-4) > 0.01 {
			t.Errorf("after a day: %v", l.averages)
		}
	}
	l.observe(0)
	l.pass(24 * time.Hour)
	if l.averages[2] > 0.01 {
		t.Errorf("after a day of rest: %v", l.averages)
	}
}

func TestTheLoadIsTheSameInOneStepAndInMany(t *testing.T) {
	var one, many loadAverage
	one.observe(2)
	many.observe(2)
	one.pass(time.Minute)
	for range 6000 {
		many.pass(10 * time.Millisecond)
	}
	if math.Abs(one.averages[0]-many.averages[0]) > 0.01 {
		t.Errorf("%v and %v", one.averages, many.averages)
	}
}
