// Package nameserver serves names to one guest.
//
// Without rules it understands only enough of a message to pass it on safely. With rules a name that no rule allows does not
// exist here and is asked nowhere, so no data leaves in its labels. A name that is allowed gets an address that stands for it.
package nameserver

import (
	"bytes"
	"context"
	"errors"
	"net"
	"sync"
	"time"

	"github.com/miekg/dns"

	"atoll/relay/names"
	"atoll/relay/pace"
	"atoll/relay/resolve"
)

const (
	questionsMost = 256 // at once
	streamsMost   = 32
	// A guest that asks more often would delay others. What is beyond it waits in the kernel's queue; when that is full, more
	// is lost.
	questionsPerSecond = 500
	questionsBurst     = 512
	streamsPerSecond   = 50

	idleMost = 20 * time.Second
	// When descriptors or memory are short, the accepting tries again after this time.
	shortagePause = 250 * time.Millisecond
	// No client sends questions this long. Each guest has a buffer of this size, and a message of 64 KiB takes 5 ms to read.
	questionMost = 4096
)

// Parts are the parts of a nameserver.
type Parts struct {
	Datagrams net.PacketConn // for questions by UDP; the nameserver owns it from now on
	Listener  net.Listener   // for questions by TCP; the nameserver owns it too
	Client    *resolve.Client
	Resolver  *resolve.Resolver
	Names     *names.Table
	Judge     Judge
	// Ready is closed when questions may be answered. Until then they wait in the kernel's queue. Nil: at once.
	Ready <-chan struct{}
}

// Server is the nameserver of one guest.
type Server struct {
	parts Parts
	named *named
	idle  time.Duration
	pace  *pace.Pace
	busy  chan struct{} // has one for each question that is under way

	ctx     context.Context
	cancel  context.CancelFunc
	running sync.WaitGroup

	mu       sync.Mutex
	streams  map[net.Conn]struct{}
	isClosed bool
}

// Serve answers questions until Close.
func Serve(parts Parts) *Server {
	made := prepared(parts)
	made.start()
	return made
}

func prepared(parts Parts) *Server {
	ctx, cancel := context.WithCancel(context.Background())
	return &Server{
		parts: parts, named: &named{parts.Judge, parts.Resolver, parts.Names}, idle: idleMost,
		pace: pace.New(questionsPerSecond, questionsBurst, time.Now), busy: make(chan struct{}, questionsMost),
		ctx: ctx, cancel: cancel, streams: map[net.Conn]struct{}{},
	}
}

func (s *Server) start() {
	s.running.Go(s.serveDatagrams)
	s.running.Go(s.accept)
}

// Close closes both sockets and all streams, and leaves open questions unanswered. When it returns, nothing runs any more.
func (s *Server) Close() {
	s.cancel()
	s.parts.Listener.Close()
	s.parts.Datagrams.Close()
	s.mu.Lock()
	s.isClosed = true
	for each := range s.streams {
		each.Close()
	}
	s.mu.Unlock()
	s.running.Wait()
}

// isReady waits until questions may be answered. It is false if the server is closed before.
func (s *Server) isReady() bool {
	if s.parts.Ready == nil {
		return true
	}
	select {
	case <-s.parts.Ready:
		return true
	case <-s.ctx.Done():
		return false
	}
}

func (s *Server) serveDatagrams() {
	if !s.isReady() {
		return
	}
	buffer := make([]byte, questionMost+1)
	for s.pace.Wait(s.ctx) {
		count, asker, err := s.parts.Datagrams.ReadFrom(buffer)
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			pace.Rest(s.ctx, shortagePause)
			continue
		}
		s.pace.Take()
		query := buffer[:count]
		if refusal, isRefused := s.refused(query); isRefused {
			s.reply(refusal, asker)
			continue
		}
		query = bytes.Clone(query)
		s.running.Go(func() {
			defer s.done()
			s.reply(s.answer(query, resolve.Datagram), asker)
		})
	}
}

// reply answers by datagram. A guest that does not read its answers loses them, as on any network.
func (s *Server) reply(answer []byte, asker net.Addr) {
	if answer != nil {
		s.parts.Datagrams.WriteTo(answer, asker)
	}
}

// refused gives the answer to what is not looked into. Otherwise a question is under way until done.
func (s *Server) refused(query []byte) (answer []byte, isRefused bool) {
	if len(query) > questionMost || !isQuery(query) {
		return failure(query, dns.RcodeFormatError), true
	}
	select {
	case s.busy <- struct{}{}:
		return nil, false
	default:
		return failure(query, dns.RcodeServerFailure), true
	}
}

func (s *Server) done() { <-s.busy }

// answer is nil if the question deserves none.
func (s *Server) answer(query []byte, by resolve.Network) []byte {
	if s.parts.Judge.Needed() || asksForModels(query) {
		return s.named.answer(s.ctx, query)
	}
	answer, err := s.parts.Client.Exchange(s.ctx, query, by)
	if s.ctx.Err() != nil {
		return nil // it is being closed, and may be asked again elsewhere
	}
	if err != nil {
		return failure(query, dns.RcodeServerFailure)
	}
	return answer
}
