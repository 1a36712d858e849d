package splice

import (
	"encoding/binary"
	"time"

	"golang.org/x/sys/unix"

	"atoll/relay/socket"
)

const (
	farewellMost = 64
	recordHeader = 5
	// The end of a connection comes with the word that announces it, or right after.
	endMost = time.Second

	tlsAlert, tlsData = 21, 23
	// An alert of TLS 1.3: its two bytes, its kind, and its authentication tag.
	hiddenAlert = 19
)

// Watch calls told, at most once, when data comes from outside on a splice that is held, or has come already. The data stays
// there. A reset, an end of stream and an end that TLS announces are no data.
func (s *Splice) Watch(told func()) {
	unwatched := s.in.beginWatch()
	go func() {
		isData := s.comes(unwatched)
		s.in.endWatch()
		if isData {
			told()
		}
	}()
}

func (s *Splice) comes(unwatched <-chan struct{}) bool {
	unread, hasEnded, err := s.remote.news()
	switch {
	case err != nil:
		return false
	case len(unread) > 0 && !IsFarewell(unread):
		return true
	case hasEnded:
		return false
	case len(unread) > 0:
		return s.isWelcome(unread, unwatched)
	default:
		return true // urgent data, at which nobody can peek
	}
}

// IsWatched tells whether data may still come for which Watch waits.
func (s *Splice) IsWatched() bool {
	s.in.mu.Lock()
	defer s.in.mu.Unlock()
	return s.in.unwatched != nil
}

// Unwatch ends Watch, and returns when it has ended.
func (s *Splice) Unwatch() { s.in.unwatch() }

// isWelcome judges what looked like a farewell, after the end had time to come.
func (s *Splice) isWelcome(farewell []byte, unwatched <-chan struct{}) bool {
	select {
	case <-time.After(endMost):
	case <-unwatched:
		return false
	}
	isOver := s.RemoteHasEnded() || farewell[0] == tlsAlert
	var now []byte
	s.remote.ask(func(fd int) { now = unreadOf(fd) })
	return !isOver || string(now) != string(farewell)
}

// news waits until something comes, and returns the beginning of it and whether nothing more can come.
func (e *end) news() (unread []byte, hasEnded bool, err error) {
	err = e.raw.Read(func(fd uintptr) bool {
		unread = unreadOf(int(fd))
		events := socket.Events(int(fd), unix.POLLIN|unix.POLLRDHUP)
		hasEnded = events&^unix.POLLIN != 0
		return events != 0
	})
	return unread, hasEnded, err
}

// unreadOf is the beginning of what can be read. An error that is only read here would be no reset any more for the guest.
func unreadOf(fd int) []byte {
	if count, err := unix.IoctlGetInt(fd, unix.TIOCINQ); err != nil || count == 0 {
		return nil
	}
	buffer := make([]byte, farewellMost+1)
	count, err := socket.Peek(fd, buffer)
	if err != nil {
		return nil
	}
	return buffer[:count]
}

// IsFarewell tells whether data may be TLS's announcement of an end, and nothing else. In TLS 1.3 it looks as two bytes of
// content would.
func IsFarewell(data []byte) bool {
	if len(data) < recordHeader || len(data) > farewellMost {
		return false
	}
	kind, version, length := data[0], binary.BigEndian.Uint16(data[1:]), int(binary.BigEndian.Uint16(data[3:]))
	if version < 0x0301 || version > 0x0304 || len(data) != recordHeader+length {
		return false
	}
	return kind == tlsAlert || kind == tlsData && length == hiddenAlert
}

// beginWatch lets somebody else wait for the source of a pump that is held.
func (p *pump) beginWatch() <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.unwatched = make(chan struct{})
	if p.held && !p.gone {
		_ = p.source.SetReadDeadline(time.Time{})
	}
	return p.unwatched
}

func (p *pump) endWatch() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.held {
		_ = p.source.SetReadDeadline(past)
	}
	p.unwatched = nil
	p.changed.Broadcast()
}

func (p *pump) unwatch() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.unwatched != nil {
		select {
		case <-p.unwatched:
		default:
			close(p.unwatched)
		}
		_ = p.source.SetReadDeadline(past)
	}
	for p.unwatched != nil {
		p.changed.Wait()
	}
}
