package splice

import (
	"errors"
	"io"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

type phase int

const (
	// waiting for its source to have something.
	waiting phase = iota
	// moving a piece: it holds bytes, or the end of the stream, that its target has not accepted yet.
	moving
	// parked until it is released.
	parked
	// over: everything has gone through, or one of the ends has failed.
	over
)

// past is a deadline that interrupts any wait.
var past = time.Unix(1, 0)

// pump moves bytes in one direction. One goroutine runs it, the others command it.
type pump struct {
	source, target *end
	room           *Room
	// before has the first bytes judged before any of them is moved; nil if they need not be.
	before func() (isOpen bool, err error)
	// search looks into the first bytes for what may not leave; nil: nothing is looked for.
	search *search

	mu      sync.Mutex
	changed *sync.Cond
	at      phase
	held    bool
	drain   bool // parked, it moves the waiting bytes and then parks again
	stuck   bool // moving, and its target takes nothing now
	gone    bool // it must end as soon as it can
	moved   bool
	failed  bool
	// closed when whoever watches the source is to stop; nil: nobody does
	unwatched chan struct{}
}

func newPump(source, target *end, room *Room) *pump {
	made := &pump{source: source, target: target, room: room, at: parked, held: true}
	made.changed = sync.NewCond(&made.mu)
	return made
}

// run moves everything and then ends the target's stream. It returns when that is done, when an end has failed, or when it
// is abandoned.
func (p *pump) run() error {
	err := p.through()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.stuck, p.drain, p.failed = false, false, err != nil
	// A guest that sleeps would miss a reset, so a failure counts only at its release.
	for p.failed && p.held && !p.gone {
		p.at = parked
		p.changed.Broadcast()
		p.changed.Wait()
	}
	p.at = over
	p.changed.Broadcast()
	return err
}

var errAbandoned = errors.New("the connection is given up")

func (p *pump) through() error {
	for {
		isDraining, err := p.wait()
		if err != nil {
			return err
		}
		if p.before != nil && !isDraining {
			isOpen, err := p.before()
			if errors.Is(err, os.ErrDeadlineExceeded) {
				continue
			}
			if err != nil {
				return err
			}
			if !isOpen {
				return errAbandoned
			}
			p.before = nil
			continue
		}
		err = p.step(isDraining)
		switch {
		case errors.Is(err, os.ErrDeadlineExceeded):
		case errors.Is(err, io.EOF):
			p.enter(moving) // the end of the stream: the target may take its time
			return p.target.CloseWrite()
		case err != nil:
			return err
		}
	}
}

// wait lets a pump that is held wait for its release, and tells whether it is only to move what has come.
func (p *pump) wait() (isDraining bool, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for p.held && !p.gone {
		if p.drain {
			if p.before == nil && p.source.unread() > 0 && !p.target.hasFailed() {
				p.at = moving
				return true, nil
			}
			p.drain = false
		}
		p.at = parked
		p.changed.Broadcast()
		p.changed.Wait()
	}
	if p.gone {
		return false, errAbandoned
	}
	p.at = waiting
	return false, nil
}

// step moves one piece.
func (p *pump) step(isDraining bool) error {
	carrier, count, err := p.take(isDraining)
	if err != nil {
		return err
	}
	p.mu.Lock()
	p.moved = true
	p.mu.Unlock()
	p.room.take(count)
	left, err := p.pass(carrier, count)
	p.room.give(left)
	if err != nil {
		carrier.close()
		return err
	}
	carrier.give()
	return nil
}

// take moves the waiting bytes, at most a piece, into a pipe. From then on the pump is moving.
func (p *pump) take(isDraining bool) (carrier *pipe, count int, err error) {
	var failure error
	fill := func(fd uintptr) bool {
		most := pieceBytes
		if p.search.isOn() {
			if most, failure = p.search.clear(int(fd)); failure != nil {
				return failure != unix.EAGAIN
			}
		}
		if carrier, failure = takePipe(); failure != nil {
			return true
		}
		count, failure = spliceOnce(int(fd), carrier.write, min(most, p.room.piece(carrier.capacity)))
		if failure == nil && count > 0 {
			p.search.passed(count)
			return true
		}
		// A pump that waits has no pipe.
		carrier.give()
		carrier = nil
		return failure != unix.EAGAIN
	}
	if isDraining { // a deadline keeps a pump that is held from reading
		err = p.source.raw.Control(func(fd uintptr) { fill(fd) })
	} else {
		err = p.source.raw.Read(fill)
	}
	if err == nil {
		err = failure
	}
	switch {
	case carrier != nil:
		p.enter(moving)
		return carrier, count, nil
	case isDraining && (err == nil || err == unix.EAGAIN):
		return nil, 0, os.ErrDeadlineExceeded
	case err == nil:
		return nil, 0, io.EOF
	}
	return nil, 0, err
}

// pass moves a piece from the pipe to the target, and returns how much of it the target has not taken.
func (p *pump) pass(carrier *pipe, count int) (left int, err error) {
	for left = count; left > 0; {
		var failure error
		sent := 0
		err := p.target.raw.Write(func(fd uintptr) bool {
			sent, failure = spliceOnce(carrier.read, int(fd), left)
			if failure == unix.EAGAIN {
				p.setStuck(true)
				return false
			}
			return true
		})
		if err == nil {
			err = failure
		}
		if err != nil {
			return left, err
		}
		left -= sent
		p.room.give(sent)
	}
	p.setStuck(false)
	return 0, nil
}

func (p *pump) setStuck(stuck bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.stuck != stuck {
		p.stuck = stuck
		p.changed.Broadcast()
	}
}

func spliceOnce(from, to, most int) (int, error) {
	for {
		count, err := unix.Splice(from, nil, to, nil, most, unix.SPLICE_F_MOVE|unix.SPLICE_F_NONBLOCK)
		if err != unix.EINTR {
			return int(count), err
		}
	}
}

func (p *pump) enter(at phase) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.at = at
	p.changed.Broadcast()
}

// hold lets it move nothing more, and returns when it waits for its source no longer.
func (p *pump) hold() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.held = true
	_ = p.source.SetReadDeadline(past)
	for p.at == waiting {
		p.changed.Wait()
	}
}

// release undoes hold.
func (p *pump) release() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.held, p.drain = false, false
	_ = p.source.SetReadDeadline(time.Time{})
	p.changed.Broadcast()
}

// drainHeld moves what has come although it is held, as far as the target takes it at once. It tells whether something
// is left.
func (p *pump) drainHeld() (isLeft bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.at == parked && p.held && !p.failed {
		p.drain = true
		p.changed.Broadcast()
		for p.drain && !p.stuck && p.at != over {
			p.changed.Wait()
		}
	}
	return p.at == moving
}

// interrupt makes the one who waits for the source look around, with an error of a deadline.
func (p *pump) interrupt() { _ = p.source.SetReadDeadline(past) }

// resume lets it wait again after an interruption. It is false when the pump is held, which the deadline was for then.
func (p *pump) resume() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.held || p.gone {
		return false
	}
	_ = p.source.SetReadDeadline(time.Time{})
	return true
}

// abandon makes it end, with its ends untouched unless it is moving: then they are to be closed.
func (p *pump) abandon() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.gone = true
	_ = p.source.SetReadDeadline(past)
	p.changed.Broadcast()
}

func (p *pump) isMoving() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.at == moving
}

func (p *pump) isOver() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.at == over && !p.failed
}

func (p *pump) hasMoved() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.moved
}
