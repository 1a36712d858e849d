// Package splice joins a guest's connection with its counterpart outside, for as long as both want it.
//
// A guest may be suspended for days. So a splice never ends by itself, can be held, and tells what it owes to whom.
package splice

import (
	"errors"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"atoll/policy"
)

// Often enough that a host between the two does not forget the connection.
const probeSeconds = 60

// How often a guest is looked at that has not got all yet.
const (
	deliveredFirst = time.Millisecond
	deliveredLast  = time.Second
)

// Outcome is how a splice has ended.
type Outcome int

const (
	// Ended on both sides, and everything got through.
	Ended Outcome = iota
	// Reset by an end, or by the owner of the splice.
	Reset
	// Refused: the guest's first bytes ask for something that may not pass.
	Refused
	// Inspected: the guest's end goes to the edge, and was left open.
	Inspected
	// Betrayed: the guest was about to send what may not leave.
	Betrayed
)

// Checks are what a guest's bytes have to pass.
type Checks struct {
	Gate     *Gate  // judges the first bytes before any of them goes on; nil: they may be anything
	Canaries Finder // what the guest may not send; nil: nothing is looked for
}

// Splice is a guest's end and the one outside, joined both ways with half-close. It owns both.
type Splice struct {
	guest, remote *end
	out, in       *pump // from the guest, and to it

	reset chan struct{} // closed by Reset

	mu      sync.Mutex
	closed  bool
	outcome Outcome
	sent    []byte
}

// New joins two ends, which are held until Release.
func New(guest, remote End, room *Room, checks Checks) (*Splice, error) {
	from, err := newEnd(guest)
	if err != nil {
		return nil, err
	}
	to, err := newEnd(remote)
	if err != nil {
		return nil, err
	}
	made := &Splice{
		guest: from, remote: to, out: newPump(from, to, room), in: newPump(to, from, room), reset: make(chan struct{}),
	}
	made.out.search = searchFor(checks.Canaries)
	if gate := checks.Gate; gate != nil {
		gate.pump = made.out
		made.out.before = func() (bool, error) { return made.passes(gate) }
	}
	return made, nil
}

// Run moves bytes until the splice has ended. Both ends are closed then, but for the guest's when the outcome is Inspected.
func (s *Splice) Run() Outcome {
	var other sync.WaitGroup
	other.Go(func() { s.finish(s.in.run()) })
	s.finish(s.out.run())
	other.Wait()
	s.deliver()
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.outcome == Inspected && s.in.hasMoved():
		// The guest has heard the server already, whom it would now not find behind the edge.
		s.outcome = Refused
		s.guest.Close()
	case s.outcome == Inspected:
		_ = s.guest.SetReadDeadline(time.Time{})
	case s.closed:
	default:
		s.closed = true
		s.guest.flush()
		s.guest.Close()
	}
	return s.outcome
}

// deliver waits until the guest has all data, and knows that no more comes. The kernel alone would not keep that
// for a guest that reads slowly, or sleeps. The side outside is closed at once, and has as long as with any other host.
func (s *Splice) deliver() {
	if s.isClosed() {
		return
	}
	s.remote.flush()
	s.remote.Close()
	for pause := deliveredFirst; s.owesKernel(); pause = min(2*pause, deliveredLast) {
		select {
		case <-s.reset:
			return
		case <-time.After(pause):
		}
	}
}

// owesKernel tells whether only the kernel has the rest of the guest's data.
func (s *Splice) owesKernel() bool {
	return s.in.isOver() && !s.guest.hasFailed() && s.guest.unacknowledged() > 0
}

// Sent are the first bytes that went on before the outcome was known to be Inspected.
func (s *Splice) Sent() []byte { return s.sent }

func (s *Splice) finish(err error) {
	if err != nil {
		s.Reset()
	}
	if errors.Is(err, errBetrayed) {
		s.mu.Lock()
		s.outcome = Betrayed // also if the server has gone meanwhile
		s.mu.Unlock()
	}
}

// passes asks the gate. A guest whose requests are to be judged gets no end from here.
func (s *Splice) passes(gate *Gate) (bool, error) {
	passage, err := gate.wait()
	if err != nil || passage == policy.PassOn {
		return err == nil, err
	}
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return false, nil
	}
	s.closed, s.outcome = true, Refused
	if passage == policy.LookInto {
		s.outcome, s.sent = Inspected, gate.sent
	}
	s.mu.Unlock()
	s.remote.Close()
	if passage != policy.LookInto {
		s.guest.Close()
	}
	s.in.abandon()
	return false, nil
}

// Reset resets both ends. Run returns soon after.
func (s *Splice) Reset() {
	s.mu.Lock()
	wasClosed := s.closed
	if !wasClosed {
		s.closed, s.outcome = true, Reset
		close(s.reset)
	}
	s.mu.Unlock()
	if !wasClosed {
		s.guest.Close()
		s.remote.Close()
	}
	s.out.abandon()
	s.in.abandon()
}

// Hold lets nothing pass until Release. When it returns, the splice takes nothing more from the ends.
func (s *Splice) Hold() {
	s.out.hold()
	s.in.hold()
}

// Release undoes Hold.
func (s *Splice) Release() {
	s.Unwatch()
	s.in.release()
	s.out.release()
}

// Ask asks the guest whether it still knows the connection, if it has ended its side, or asks no more. A guest that has
// closed the connection forgets it after a minute and answers with a reset, which ends the splice.
func (s *Splice) Ask(wanted bool) {
	if !s.out.isOver() {
		return
	}
	// Nothing is read from it any more, so the reset is not reported.
	if s.guest.hasFailed() {
		s.Reset()
		return
	}
	s.guest.keepalive(wanted, 1, 0)
}

// Probe asks the side outside every minute whether it still knows the connection, or asks no more. Silence ends nothing.
func (s *Splice) Probe(wanted bool) { s.remote.keepalive(wanted, probeSeconds, probeSeconds) }

// IsOver tells whether a held connection could only be reset: an end is gone, and nothing is left for the guest.
func (s *Splice) IsOver() bool {
	if s.isClosed() {
		return true
	}
	if s.in.isMoving() || s.remote.unread() > 0 || s.owesKernel() {
		return false
	}
	return s.GuestIsGone() || s.remote.hasFailed()
}

// GuestIsGone tells whether the kernel has given up the guest's end.
func (s *Splice) GuestIsGone() bool { return s.isClosed() || s.guest.hasFailed() }

// OwesGuest tells whether something from outside has not reached the guest, or only in the last milliseconds.
func (s *Splice) OwesGuest(withinMilliseconds uint32) bool {
	theEnd := 0
	if s.in.isOver() {
		theEnd = 1 // which counts as a byte
	}
	if s.in.isMoving() || s.guest.unacknowledged() > theEnd {
		return true
	}
	return s.guest.sentMilliseconds() < withinMilliseconds
}

// OwesRemote tells whether something from the guest waits here. What a held splice can send out is sent first.
func (s *Splice) OwesRemote() bool {
	if s.isClosed() {
		return false
	}
	return s.out.drainHeld() || s.guest.unread() > 0
}

// RemoteHasEnded tells whether nothing more can come from outside.
func (s *Splice) RemoteHasEnded() bool {
	return s.isClosed() || s.remote.events(unix.POLLRDHUP) != 0
}

func (s *Splice) isClosed() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.closed
}
