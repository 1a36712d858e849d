package systrap

import (
	"testing"
	"time"
)

// alone has contexts spin as in a sandbox that does little on four processors.
func alone(t *testing.T) {
	t.Helper()
	threads, from, never := maxSysmsgThreads, spinFrom, neverEnableFastPath
	maxSysmsgThreads, spinFrom, neverEnableFastPath = 4, time.Now().Add(-time.Second), false
	t.Cleanup(func() { maxSysmsgThreads, spinFrom, neverEnableFastPath = threads, from, never })
}

func TestAContextDoesNotSpinBeforeItsMachineHasStarted(t *testing.T) {
	alone(t)
	var s spinState
	spinFrom = time.Now().Add(time.Hour)
	if s.next() {
		t.Error("it spins while its machine starts")
	}
	spinFrom = time.Now().Add(-time.Second)
	if !s.next() {
		t.Error("it does not spin afterwards")
	}
	neverEnableFastPath = true
	if s.next() {
		t.Error("it spins where that is turned off")
	}
}

func TestAContextSpinsOnlyWhileHalfOfTheProcessorsAreIdle(t *testing.T) {
	alone(t)
	defer fastpath.nrMaxAwakeStubThreads.Store(fastpath.nrMaxAwakeStubThreads.Load())
	var s spinState
	for awake, want := range []bool{true, true, true, false, false} {
		fastpath.nrMaxAwakeStubThreads.Store(uint32(awake))
		if got := s.next(); got != want {
			t.Errorf("%d of 4 threads awake: next() = %v", awake, got)
		}
	}
}

// crowd has others want the processor until the context rests, and returns after how many turns it does.
func crowd(s *spinState) int {
	for turns := 1; ; turns++ {
		s.done(true)
		if s.rest > 0 {
			return turns
		}
	}
}

func TestAContextRestsWhenOthersWantTheProcessorAndLongerEachTime(t *testing.T) {
	alone(t)
	var s spinState
	for want := spinRestMin; want < 2*spinRestMax; want *= 2 {
		if turns := crowd(&s); turns < 5 || turns > 20 {
			t.Errorf("it rests after %d crowded turns", turns)
		}
		if s.rest != min(want, spinRestMax) {
			t.Errorf("it rests for %d turns, want %d", s.rest, min(want, spinRestMax))
		}
		for rest := s.rest; rest > 0; rest-- {
			if s.next() {
				t.Fatalf("it spins with %d turns of rest left", rest)
			}
		}
		if !s.next() {
			t.Error("it does not spin after its rest")
		}
	}
}

func TestAContextForgetsItsRestsAfterManyGoodTurns(t *testing.T) {
	alone(t)
	var s spinState
	crowd(&s)
	crowd(&s)
	for range spinCalm + 1 {
		s.done(false)
	}
	crowd(&s)
	if s.rest != spinRestMin {
		t.Errorf("it rests for %d turns after calm ones", s.rest)
	}
}

func TestAContextSpinsOnWhereOthersWantTheProcessorInHalfOfTheTurns(t *testing.T) {
	var s spinState
	for range 1000 {
		s.done(true)
		s.done(false)
	}
	if s.rest != 0 {
		t.Errorf("it rests for %d turns", s.rest)
	}
}

func newHandoff() *handoff {
	h := &handoff{thread: &sysmsgThread{}}
	h.left.L = &h.mu
	return h
}

// resting is a context that does not spin.
func resting() *sharedContext {
	return &sharedContext{spin: spinState{rest: 1 << 30}}
}

func TestAContextThatIsAloneHasTheThreadUntilItLeaves(t *testing.T) {
	alone(t)
	h, ctx := newHandoff(), resting()
	for range 3 {
		if how := h.enter(ctx); how != handoffTurn || h.owner != ctx {
			t.Fatalf("enter() = %v, owner %p", how, h.owner)
		}
		h.leave(ctx)
		if h.owner != nil || h.running != 0 {
			t.Fatalf("left: owner %p, %d run", h.owner, h.running)
		}
	}
}

func TestAContextThatIsAloneMaySpin(t *testing.T) {
	alone(t)
	h, ctx := newHandoff(), &sharedContext{}
	if how := h.enter(ctx); how != spinTurn || h.owner != nil {
		t.Errorf("enter() = %v, owner %p", how, h.owner)
	}
}

func TestWithoutAThreadTurnsAreShared(t *testing.T) {
	alone(t)
	h, ctx := &handoff{}, &sharedContext{}
	if how := h.enter(ctx); how != sharedTurn {
		t.Errorf("enter() = %v", how)
	}
	h.leave(ctx)
}

func TestASecondContextWaitsUntilTheOwnerHasLeft(t *testing.T) {
	alone(t)
	h, owner, second := newHandoff(), resting(), resting()
	h.enter(owner)
	h.recalled = true // Else it would be interrupted, for which there is no guest here.
	entered := make(chan turn)
	go func() { entered <- h.enter(second) }()
	select {
	case how := <-entered:
		t.Fatalf("it entered as %v beside the owner", how)
	case <-time.After(20 * time.Millisecond):
	}
	h.leave(owner)
	if how := <-entered; how != sharedTurn {
		t.Errorf("enter() = %v", how)
	}
	if h.running != 1 {
		t.Errorf("%d run", h.running)
	}
}

func TestAfterARecallThereIsNoHandoffForAWhile(t *testing.T) {
	alone(t)
	h, ctx := newHandoff(), resting()
	h.rest, h.restUntil = handoffRestMin, time.Now().Add(time.Hour)
	if how := h.enter(ctx); how != sharedTurn {
		t.Errorf("enter() = %v during the rest", how)
	}
	h.leave(ctx)
	h.restUntil = time.Now().Add(-time.Second)
	for range handoffCalm + 1 {
		if how := h.enter(ctx); how != handoffTurn {
			t.Fatalf("enter() = %v after the rest", how)
		}
		h.leave(ctx)
	}
	if h.rest != 0 {
		t.Errorf("the next rest follows one of %v after calm turns", h.rest)
	}
	h.rest, h.crowded = time.Second, true
	if h.renew(); h.rest != 0 || h.crowded {
		t.Error("the next user of the subprocess has the last one's rest")
	}
}

// refused is a subprocess of this many stub threads beside the one for handoff, for which no other can be made.
func refused(t *testing.T, threads int) *subprocess {
	t.Helper()
	before := maxSysmsgThreads
	maxSysmsgThreads = threads + 1
	t.Cleanup(func() { maxSysmsgThreads = before })
	s := &subprocess{
		requests:         make(chan any),
		contextQueue:     &contextQueue{numActiveContexts: uint32(threads) + 1, numActiveThreads: uint32(threads)},
		numSysmsgThreads: threads,
		// No thread has these numbers.
		syscallThread: &syscallThread{thread: &thread{tgid: -1, tid: -1}},
	}
	go func() {
		for request := range s.requests {
			request.(requestThread).thread <- nil
		}
	}()
	t.Cleanup(func() { close(s.requests) })
	return s
}

func TestASubprocessWithoutAThreadForSharedTurnsIsGivenUp(t *testing.T) {
	for threads, dead := range []bool{true, false} {
		s := refused(t, threads)
		s.kickSysmsgThread()
		if s.numSysmsgThreads != threads || s.dead.Load() != dead {
			t.Errorf("with %d threads: %d are left, dead: %v", threads, s.numSysmsgThreads, s.dead.Load())
		}
	}
}
