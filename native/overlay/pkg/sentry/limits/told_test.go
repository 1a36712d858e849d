package limits

import "testing"

func TestProgramsAreToldNoMoreProcessesThanTheyMayMake(t *testing.T) {
	defer Processes.Store(0)
	l := NewLimitSet()
	l.SetUnchecked(ProcessCount, Limit{Cur: 50, Max: 1000})
	for most, want := range map[int64]Limit{0: {50, 1000}, 100: {50, 100}, 10: {10, 10}, 5000: {50, 1000}} {
		Processes.Store(most)
		if got := l.Get(ProcessCount); got != want {
			t.Errorf("at a limit of %d: %v, want %v", most, got, want)
		}
		if got := l.Get(NumberOfFiles); got.Cur != Infinity {
			t.Errorf("at a limit of %d another one is %v", most, got)
		}
	}
	Processes.Store(7)
	if got := NewLimitSet().Get(ProcessCount); got != (Limit{7, 7}) {
		t.Errorf("without one of its own: %v", got)
	}
	if old, err := l.Set(ProcessCount, Limit{Cur: 20, Max: 20}, true); err != nil || old != (Limit{7, 7}) {
		t.Errorf("the old one is told as %v, %v", old, err)
	}
	Processes.Store(0)
	if got := l.Get(ProcessCount); got != (Limit{20, 20}) {
		t.Errorf("what was set is %v", got)
	}
}
