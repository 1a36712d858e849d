package neighbour

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"atoll/channel"
	"atoll/edge/control"
	"atoll/relay/dial"
	"atoll/relay/guest"
	"atoll/relay/splice"
)

const (
	// How many connections are made for the edge at once, for one sandbox, and how many more it may ask for meanwhile.
	dialsMost   = 64
	waitingMost = 4096
	// The edge waits no longer.
	dialMost = 15 * time.Second
)

// Side is the edge for one sandbox.
type Side struct {
	neighbour *Neighbour
	sandbox   string
	inspected Inspected
	ctx       context.Context // ends with it
	end       context.CancelFunc
	sending   sync.Mutex // the rules of a connection follow it, and the newest come last
	asked     atomic.Int64
	dials     chan struct{}
}

var _ guest.Edge = (*Side)(nil)

func newSide(neighbour *Neighbour, sandbox string, inspected Inspected) *Side {
	made := &Side{
		neighbour: neighbour, sandbox: sandbox, inspected: inspected, dials: make(chan struct{}, dialsMost),
	}
	made.ctx, made.end = context.WithCancel(context.Background())
	return made
}

// Close has the edge ask for nothing of this sandbox any more, unless another side has become its own.
func (s *Side) Close() {
	s.end()
	s.neighbour.forget(s)
}

// Take hands a connection to the edge, and returns the end that the relay keeps. It waits a moment for an edge that starts.
func (s *Side) Take(ctx context.Context, connection *guest.Connection) (splice.End, error) {
	to, err := s.neighbour.await(ctx)
	if err != nil {
		return nil, err
	}
	kept, given, err := pair()
	if err != nil {
		return nil, fmt.Errorf("connection %s: %w", connection.ID, err)
	}
	s.sending.Lock()
	defer s.sending.Unlock()
	message := s.about(connection, "take")
	message.Name, message.Address, message.Port =
		connection.Destination.Name, connection.Address, connection.Destination.Port
	if err := to.send(message, given); err != nil {
		kept.Close()
		return nil, err
	}
	return &end{kept, to}, nil
}

// JudgeBy tells the edge the rules that a connection keeps now.
func (s *Side) JudgeBy(connection *guest.Connection) {
	to := s.neighbour.current()
	if to == nil {
		return // the connection has ended with it, or waits for the next one
	}
	s.sending.Lock()
	defer s.sending.Unlock()
	// Without them, the edge cuts the connection.
	_ = to.send(s.about(connection, "rules"), nil)
}

// about is a message about a connection with the rules that it keeps now.
func (s *Side) about(connection *guest.Connection, op string) control.Message {
	kept := connection.Kept()
	return control.Message{
		Op: op, Sandbox: s.sandbox, Connection: connection.ID,
		Version: kept.Version, Rules: kept.Own, Ceiling: kept.Above,
	}
}

// dial connects for the edge to where one of its connections leads. It does not wait.
func (s *Side) dial(to *edge, asked *control.Dial) {
	if s.asked.Add(1) > dialsMost+waitingMost {
		s.asked.Add(-1)
		to.answer(asked.ID, nil, errors.New("too many connections are being made for the sandbox"))
		return
	}
	id, connection, provider := asked.ID, asked.Connection, asked.Provider
	go func() {
		defer s.asked.Add(-1)
		made, err := s.connect(to, connection, provider)
		to.answer(id, made, err)
	}()
}

func (s *Side) connect(to *edge, connection, provider string) (*net.TCPConn, error) {
	ctx, cancel := context.WithTimeoutCause(to.ctx, dialMost, dial.ErrSilent)
	defer cancel()
	defer context.AfterFunc(s.ctx, cancel)()
	select {
	case s.dials <- struct{}{}:
		defer func() { <-s.dials }()
		if provider != "" {
			return s.inspected.DialProvider(ctx, connection, provider)
		}
		return s.inspected.DialInspected(ctx, connection)
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// pair is both ends of a connection to the edge.
func pair() (kept *net.UnixConn, given *os.File, err error) {
	ends, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, fmt.Errorf("make a socket pair: %w", err)
	}
	given = os.NewFile(uintptr(ends[1]), "edge")
	stream, err := channel.Stream(os.NewFile(uintptr(ends[0]), "relay"))
	if err != nil {
		given.Close()
		return nil, nil, err
	}
	return stream.(*net.UnixConn), given, nil
}
