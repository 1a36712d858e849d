package service

import (
	"net"
	"strconv"
	"time"

	"atoll/agent/process"
)

const (
	everyLeast = 100 * time.Millisecond
	// soon is how often a service that has only just started is looked at.
	soon = time.Second
)

// reason is why a run is over.
type reason int

const (
	itself reason = iota
	asked
	unhealthy
)

// run starts the program and returns when it has ended.
func (s *Service) run() (process.End, reason) {
	p, follower, err := s.begin(&s.definition, false)
	if err != nil {
		end := process.End{ExitCode: 127, Error: err.Error()}
		s.set(func(status *Status) {
			s.again = false
			status.Runs++
			status.ExitCode, status.Reason = &end.ExitCode, err.Error()
		})
		return end, itself
	}
	s.set(func(status *Status) {
		s.again = false
		status.Runs++
		status.State, status.PID, status.Healthy, status.Reason = Running, p.PID, nil, ""
	})
	over := make(chan process.End, 1)
	go s.pass(follower, over)
	why := s.attend(p)
	sweep(p)
	ended := <-over
	s.set(func(status *Status) {
		status.PID, status.Healthy, status.ExitCode = 0, nil, &ended.ExitCode
		status.Reason = told(ended, why)
	})
	return ended, why
}

func told(end process.End, why reason) string {
	switch {
	case why == asked:
		return "it was asked to end"
	case why == unhealthy:
		return "its health check failed"
	case end.TimedOut:
		return "it ran past its timeout and was killed"
	case end.Signal != 0:
		return "it ended by signal " + strconv.Itoa(end.Signal)
	}
	return "it ended with " + strconv.Itoa(end.ExitCode)
}

// attend watches a program until it has ended, and ends it when that is asked, or when its health is bad.
func (s *Service) attend(p *process.Process) reason {
	watch := s.watchHealth(p)
	for {
		select {
		case <-p.Gone():
			return itself
		case <-s.changed:
			s.mu.Lock()
			ask := !s.wanted || s.again || s.left
			s.mu.Unlock()
			if ask {
				end(p)
				return asked
			}
		case <-watch:
			watch = nil
			if s.definition.Restart != Never && !s.definition.Scheduled {
				end(p)
				return unhealthy
			}
		}
	}
}

// watchHealth checks until the program has gone; the channel receives when it has failed too often in a row.
func (s *Service) watchHealth(p *process.Process) <-chan struct{} {
	bad := make(chan struct{}, 1)
	if s.definition.Health == nil {
		return bad
	}
	go func() {
		health, began, failures, pause := s.definition.Health, time.Now(), 0, everyLeast
		for {
			select {
			case <-p.Gone():
				return
			case <-time.After(pause):
			}
			pause = min(2*pause, soon)
			well := s.isWell(health)
			switch {
			case well:
				failures, pause, began = 0, health.every(), time.Time{}
				s.note(p, true)
			case time.Since(began) >= health.grace():
				failures, pause = failures+1, health.every()
			}
			if failures >= max(1, health.Failures) {
				s.note(p, false)
				failures = 0
				select {
				case bad <- struct{}{}:
				default:
				}
			}
		}
	}()
	return bad
}

func (s *Service) note(p *process.Process, well bool) {
	s.set(func(status *Status) {
		if status.PID == p.PID {
			status.Healthy = &well
		}
	})
}

func (s *Service) isWell(health *Health) bool {
	if health.Port != 0 {
		for _, host := range []string{"127.0.0.1", "::1"} {
			address := net.JoinHostPort(host, strconv.Itoa(health.Port))
			if connection, err := net.DialTimeout("tcp", address, health.timeout()); err == nil {
				connection.Close()
				return true
			}
		}
		return false
	}
	check := s.definition
	check.Argv, check.Line, check.TimeoutMS = nil, &health.Line, health.timeout().Milliseconds()
	_, follower, err := s.begin(&check, true)
	if err != nil {
		return false
	}
	return verdict(follower)
}

// verdict waits for a check's end. What it prints is for nobody.
func verdict(follower *process.Follower) bool {
	defer follower.Close()
	var nowhere [4096]byte
	for {
		_, count, end := follower.Take(nowhere[:])
		switch {
		case end != nil:
			return end.ExitCode == 0
		case count == 0:
			<-follower.Wake
		}
	}
}
