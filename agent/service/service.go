package service

import (
	"fmt"
	"io"
	"sync"
	"syscall"
	"time"

	"atoll/agent/frames"
	"atoll/agent/process"
)

const (
	pauseFirst = 200 * time.Millisecond
	pauseMost  = 30 * time.Second
	// steady is how long a service must have run for its next restart to come soon again.
	steady = 10 * time.Second
	// stopGrace is how long a service may take to end by itself when it is asked to.
	stopGrace = 10 * time.Second
)

// The states of a service.
const (
	Running = "running"
	Waiting = "waiting" // for its restart, or for its time
	Stopped = "stopped"
	Ended   = "ended"
)

// Status tells how a service is.
type Status struct {
	Name     string `json:"name"`
	State    string `json:"state"`
	PID      int    `json:"pid"`
	Restarts int    `json:"restarts"`
	Runs     int    `json:"runs"`
	Healthy  *bool  `json:"healthy"`
	ExitCode *int   `json:"exit_code"`
	SinceMS  int64  `json:"since_ms"`
	Reason   string `json:"reason"`
}

// Service is one that is defined. It has a goroutine of its own, from begin to leave.
type Service struct {
	// Log has the output of all of its runs.
	Log *process.Log

	definition Definition
	begin      Begin
	console    io.Writer
	changed    chan struct{} // receives when wanted, again or left may have changed
	over       chan struct{} // closed when its goroutine has ended

	mu     sync.Mutex
	wanted bool          // guarded by mu
	again  bool          // guarded by mu; the program is to be ended so that it starts again
	left   bool          // guarded by mu
	status Status        // guarded by mu
	turn   chan struct{} // guarded by mu; closed at the next change of the state
}

func begin(definition Definition, start Begin, console io.Writer) *Service {
	s := &Service{
		Log: process.NewLog(), definition: definition, begin: start, console: console,
		changed: make(chan struct{}, 1), over: make(chan struct{}), turn: make(chan struct{}),
		wanted: !definition.Scheduled,
		status: Status{Name: definition.Name, State: Waiting, SinceMS: time.Now().UnixMilli()},
	}
	go s.live()
	return s
}

// Status tells how it is now.
func (s *Service) Status() Status {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.status
}

// Start starts it, unless it runs. It returns when that was tried.
func (s *Service) Start() {
	before := -1
	s.ask(func() {
		if s.status.PID == 0 {
			before, s.wanted, s.again = s.status.Runs, true, true
		}
	}, func() bool { return s.status.Runs > before })
}

// Begun returns when it has been started once, unless it is not to be.
func (s *Service) Begun() {
	s.ask(func() {}, func() bool { return !s.wanted || s.status.Runs > 0 })
}

// Stop ends its program, and returns when that has ended.
func (s *Service) Stop() {
	s.ask(func() { s.wanted = false }, func() bool {
		return s.status.State != Running && (s.definition.Scheduled || s.status.State != Waiting)
	})
}

// Restart ends its program, if it runs, and starts it again.
func (s *Service) Restart() {
	before := 0
	s.ask(func() { before, s.wanted, s.again = s.status.Runs, true, true }, func() bool { return s.status.Runs > before })
}

// leave stops it for good.
func (s *Service) leave() {
	s.ask(func() { s.wanted, s.left = false, true }, func() bool { return true })
	<-s.over
	s.Log.Finish(process.End{})
}

// ask changes the wanted state, and returns when it is reached, or when nobody lives to reach it.
func (s *Service) ask(change func(), isSo func() bool) {
	s.mu.Lock()
	change()
	select {
	case s.changed <- struct{}{}:
	default:
	}
	for !isSo() {
		turn := s.turn
		s.mu.Unlock()
		select {
		case <-turn:
		case <-s.over:
			return
		}
		s.mu.Lock()
	}
	s.mu.Unlock()
}

// set changes the status.
func (s *Service) set(change func(*Status)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	before := s.status.State
	change(&s.status)
	if s.status.State != before {
		s.status.SinceMS = time.Now().UnixMilli()
	}
	close(s.turn)
	s.turn = make(chan struct{})
}

func (s *Service) tell(format string, args ...any) {
	if s.console != nil {
		// A log that cannot be written stops nothing.
		_, _ = fmt.Fprintf(s.console, "%s service %s: %s\n",
			time.Now().UTC().Format(time.RFC3339), s.definition.Name, fmt.Sprintf(format, args...))
	}
}

func (s *Service) live() {
	defer close(s.over)
	pause := pauseFirst
	for s.untilWanted() {
		began := time.Now()
		end, why := s.run()
		if !s.isWanted() {
			s.set(func(status *Status) { status.State = s.atRest(Stopped) })
			continue
		}
		if !s.restarts(end, why) {
			s.finish(end)
			continue
		}
		if time.Since(began) >= steady || why == asked {
			pause = pauseFirst
		}
		if why != asked {
			s.tell("starts again in %v: %s", pause, s.Status().Reason)
			s.rest(pause)
			pause = min(2*pause, pauseMost)
		}
		if s.isWanted() {
			s.set(func(status *Status) { status.Restarts++ })
		}
	}
}

// finish notes that it is over until somebody starts it.
func (s *Service) finish(end process.End) {
	s.set(func(status *Status) {
		s.wanted = s.again // somebody may have asked for another run since
		status.State = s.atRest(Ended)
	})
	s.tell("ended with %d", end.ExitCode)
}

// atRest is the state of one whose program is not to run: one with a schedule waits for its time.
func (s *Service) atRest(state string) string {
	if s.definition.Scheduled {
		return Waiting
	}
	return state
}

func (s *Service) restarts(end process.End, why reason) bool {
	if why == asked {
		return true
	}
	switch s.definition.Restart {
	case Always:
		return !s.definition.Scheduled
	case OnFailure:
		return !s.definition.Scheduled && (end.ExitCode != 0 || why == unhealthy)
	}
	return false
}

func (s *Service) isWanted() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.wanted && !s.left
}

// untilWanted waits until it is to run; false: it is left.
func (s *Service) untilWanted() bool {
	for {
		s.mu.Lock()
		wanted, left := s.wanted, s.left
		s.mu.Unlock()
		if wanted || left {
			return wanted && !left
		}
		s.set(func(status *Status) {
			if status.State == Waiting {
				status.State = s.atRest(Stopped)
			}
		})
		<-s.changed
	}
}

// rest waits before a restart, unless something is asked meanwhile.
func (s *Service) rest(pause time.Duration) {
	s.set(func(status *Status) { status.State = Waiting })
	select {
	case <-time.After(pause):
	case <-s.changed:
	}
}

// pass adds a run's output to the log, and tells its end.
func (s *Service) pass(follower *process.Follower, over chan<- process.End) {
	defer follower.Close()
	buffer := frames.Take()
	defer frames.Give(buffer)
	for {
		kind, count, end := follower.Take(buffer.Payload())
		switch {
		case count > 0:
			s.Log.Append(kind, buffer.Payload()[:count])
		case end != nil:
			over <- *end
			return
		default:
			<-follower.Wake
		}
	}
}

// end asks a program to end, and kills it when it does not.
func end(p *process.Process) {
	// It may have ended in this very moment.
	_ = p.Signal(syscall.SIGTERM)
	select {
	case <-p.Gone():
	case <-time.After(stopGrace):
		_ = p.Signal(syscall.SIGKILL)
		<-p.Gone()
	}
}

// sweep kills what a program that has ended left in its process group: it may hold the port that the next one needs.
func sweep(p *process.Process) {
	// Mostly there is nothing left.
	_ = syscall.Kill(-p.PID, syscall.SIGKILL)
}
