package nameserver

import (
	"errors"
	"net"
	"syscall"
	"time"

	"github.com/miekg/dns"

	"atoll/relay/pace"
	"atoll/relay/resolve"
	"atoll/relay/socket"
)

// Asked tells whether the guest has a connection here, or is about to have one. It may miss one that is being accepted at this
// very moment, which the kernel's list of connections has.
func (s *Server) Asked() bool {
	// In the order in which a connection goes from one place to the other.
	if listener, ok := s.parts.Listener.(syscall.Conn); ok && socket.HasWaiting(listener) {
		return true
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.streams) > 0
}

func (s *Server) accept() {
	if !s.isReady() {
		return
	}
	allowed := pace.New(streamsPerSecond, streamsMost, time.Now)
	for allowed.Wait(s.ctx) {
		stream, err := s.parts.Listener.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			pace.Rest(s.ctx, shortagePause)
			continue
		}
		allowed.Take()
		if !s.add(stream) {
			stream.Close()
			continue
		}
		s.running.Go(func() {
			defer s.remove(stream)
			s.serveStream(stream)
		})
	}
}

// add notes a stream. It is false if there are too many.
func (s *Server) add(stream net.Conn) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.isClosed || len(s.streams) >= streamsMost {
		return false
	}
	s.streams[stream] = struct{}{}
	return true
}

func (s *Server) remove(stream net.Conn) {
	stream.Close()
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.streams, stream)
}

// serveStream answers one question after the other.
func (s *Server) serveStream(stream net.Conn) {
	connection := &dns.Conn{Conn: stream}
	for s.pace.Wait(s.ctx) {
		stream.SetReadDeadline(time.Now().Add(s.idle))
		query, err := connection.ReadMsgHeader(nil)
		if err != nil {
			return
		}
		s.pace.Take()
		answer, isRefused := s.refused(query)
		if !isRefused {
			answer = s.answer(query, resolve.Stream)
			s.done()
		}
		if answer == nil {
			return
		}
		stream.SetWriteDeadline(time.Now().Add(s.idle))
		if _, err := connection.Write(answer); err != nil {
			return
		}
	}
}
