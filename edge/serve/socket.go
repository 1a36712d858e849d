package serve

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// guestEnd is the socket of a guest's connection. While it waits to be reset it stays open and says nothing more.
type guestEnd struct {
	net.Conn
	sandbox   string
	mark      mark
	resetting atomic.Bool
}

// dial connects to where the connection leads; with a provider, to that provider of models.
func (g *guestEnd) dial(ctx context.Context, provider string) (net.Conn, error) {
	return g.mark.from.Dial(ctx, g.sandbox, g.mark.id, provider)
}

// How long a carrier has to reset a connection. After it, the guest sees only an end.
const resetMost = 5 * time.Second

// reset has the carrier reset the connection. Only that can do it: it gets the guest's end to close first. Closed is called
// when this end is closed as well. It is false if the connection is being reset already.
func (g *guestEnd) reset(closed func()) bool {
	if g.resetting.Swap(true) {
		return false
	}
	go func() {
		defer closed()
		defer g.Conn.Close()
		// Here, as a carrier that does not read must not stop who changes the policy.
		if g.mark.from.Reset(g.sandbox, g.mark.id) != nil {
			return
		}
		// Until the carrier has closed it. What is cut meanwhile sets deadlines of its own.
		closing := time.AfterFunc(resetMost, func() { g.Conn.Close() })
		defer closing.Stop()
		for err := os.ErrDeadlineExceeded; errors.Is(err, os.ErrDeadlineExceeded); {
			g.SetReadDeadline(time.Time{})
			_, err = io.Copy(io.Discard, g)
		}
	}()
	return true
}

// Write fails when the connection is to be reset.
func (g *guestEnd) Write(from []byte) (int, error) {
	if g.resetting.Load() {
		return 0, net.ErrClosed
	}
	return g.Conn.Write(from)
}

// Close ends the connection, unless it is to be reset.
func (g *guestEnd) Close() error {
	if g.resetting.Load() {
		return nil
	}
	return g.Conn.Close()
}

// CloseWrite says that nothing more comes, unless the connection is to be reset.
func (g *guestEnd) CloseWrite() error {
	if g.resetting.Load() {
		return net.ErrClosed
	}
	return closeWrite(g.Conn)
}

// socket is a guest's connection, plain or with TLS opened, with bytes that were read to find out the protocol.
type socket struct {
	net.Conn
	connection *connection
	prefix     []byte
	closing    sync.Once
}

// fill reads once more behind the prefix.
func (s *socket) fill() error {
	piece := make([]byte, 4<<10)
	count, err := s.Conn.Read(piece)
	s.prefix = append(s.prefix, piece[:count]...)
	if count > 0 {
		return nil
	}
	return err
}

// Read gives the prefix first.
func (s *socket) Read(into []byte) (int, error) {
	if len(s.prefix) > 0 {
		count := copy(into, s.prefix)
		if s.prefix = s.prefix[count:]; len(s.prefix) == 0 {
			s.prefix = nil
		}
		return count, nil
	}
	return s.Conn.Read(into)
}

// Close ends the whole connection.
func (s *socket) Close() error {
	err := net.ErrClosed
	s.closing.Do(func() {
		if s.connection.lingers.Swap(false) {
			s.linger()
		}
		err = s.Conn.Close()
		s.connection.end(nil)
	})
	return err
}

// How long a guest that is still sending has to read the last answer, and how much it may send meanwhile.
const (
	lingerMost      = 500 * time.Millisecond
	lingerMostBytes = 256 << 10
	// Of a stream of HTTP/2, which does not keep its connection from anything else.
	lingerMostOfStream = 2 * time.Second
)

// linger takes the guest's further data. To close with something unread would reset the connection, and the guest might
// lose the answer.
func (s *socket) linger() {
	guest := s.connection.guest
	guest.SetDeadline(time.Now().Add(lingerMost))
	_ = s.CloseWrite()
	_ = guest.CloseWrite()
	_, _ = io.CopyN(io.Discard, guest, lingerMostBytes)
}

// CloseWrite says that nothing more comes.
func (s *socket) CloseWrite() error {
	return closeWrite(s.Conn)
}

// flushOnClose has the kernel send the data that a server has not got yet. A carrier's sockets drop such data otherwise, so
// that nothing goes out after the edge was killed.
func flushOnClose(conn net.Conn) {
	for {
		switch found := conn.(type) {
		case *tls.Conn:
			conn = found.NetConn()
		case *greeted:
			conn = found.Conn
		case *net.TCPConn:
			_ = found.SetLinger(-1)
			pauseAsUsual(found)
			return
		default:
			return
		}
	}
}

// The kernel gives up a closed connection once the pauses between its attempts are as long as they may be. The relay has made
// them short.
const usualPauseMS = 120_000

func pauseAsUsual(conn *net.TCPConn) {
	if raw, err := conn.SyscallConn(); err == nil {
		_ = raw.Control(func(fd uintptr) {
			_ = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_RTO_MAX_MS, usualPauseMS)
		})
	}
}

func closeWrite(conn net.Conn) error {
	if half, ok := conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return conn.Close()
}

// RemoteAddr is the same for all: carriers alone know addresses inside.
func (s *socket) RemoteAddr() net.Addr { return guestAddress{} }

type guestAddress struct{}

func (guestAddress) Network() string { return "guest" }
func (guestAddress) String() string  { return "guest" }

// handshaking is the guest's side of a TLS handshake. It keeps the bytes that it read until it is clear whether to open
// TLS.
type handshaking struct {
	net.Conn
	read  []byte
	muted bool // TLS is not to be opened: nothing of ours may reach the guest
	done  bool
}

func (h *handshaking) Read(into []byte) (int, error) {
	count, err := h.Conn.Read(into)
	if !h.done {
		h.read = append(h.read, into[:count]...)
	}
	return count, err
}

func (h *handshaking) Write(from []byte) (int, error) {
	if h.muted {
		return len(from), nil
	}
	return h.Conn.Write(from)
}

// CloseWrite is passed on by the TLS connection above it.
func (h *handshaking) CloseWrite() error { return closeWrite(h.Conn) }

// queue is the listener through which connections reach the HTTP server.
type queue struct {
	incoming chan net.Conn
	closed   chan struct{}
	once     sync.Once
}

func newQueue() *queue {
	return &queue{incoming: make(chan net.Conn), closed: make(chan struct{})}
}

func (q *queue) push(conn net.Conn) {
	select {
	case q.incoming <- conn:
	case <-q.closed:
		conn.Close()
	}
}

// Accept is of net.Listener, as the two below.
func (q *queue) Accept() (net.Conn, error) {
	select {
	case conn := <-q.incoming:
		return conn, nil
	case <-q.closed:
		return nil, net.ErrClosed
	}
}

func (q *queue) Close() error {
	q.once.Do(func() { close(q.closed) })
	return nil
}

func (q *queue) Addr() net.Addr { return guestAddress{} }

var past = time.Unix(1, 0)
