package systrap

import "testing"

func TestAWatchEndsBeforeItDoesAnything(t *testing.T) {
	var w watch
	w.stop()
	sc := &sharedContext{}
	w.start(sc)
	first := w.timer
	if w.start(sc); w.timer != first || !w.started.Load() {
		t.Error("a second start is not the first")
	}
	w.stop()
	if w.timer != nil || w.started.Load() {
		t.Error("it goes on")
	}
}
