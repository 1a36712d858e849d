package guest

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/netip"
	"os"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"atoll/edge/forms"
	"atoll/policy"
	"atoll/relay/splice"
)

const waitMost = 20 * time.Second

// world is a guest, and everything around it.
type world struct {
	*Guest
	t      *testing.T
	server *net.TCPListener // where everything leads
	edge   *fakeEdge
	owner  *fakeOwner

	mu    sync.Mutex
	to    netip.AddrPort // where the guest's next connection goes
	names map[netip.Addr]string
	leads map[string]string
	asked []string
	dials []string // where to
	fails error
	while func() // called while a name is resolved; nil: nothing is
	// what set has the guest's bytes searched for
	canaries *forms.Finder
}

type fakeOwner struct {
	mu        sync.Mutex
	told      []Told
	isFull    bool
	unplugged []string
	woken     []string
}

func (o *fakeOwner) Tell(told Told) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.told = append(o.told, told)
	return !o.isFull
}

func (o *fakeOwner) Unplug(reason string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.unplugged = append(o.unplugged, reason)
}

func (o *fakeOwner) Wake(from string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.woken = append(o.woken, from)
}

func (o *fakeOwner) reasons() []string {
	o.mu.Lock()
	defer o.mu.Unlock()
	var all []string
	for _, told := range o.told {
		all = append(all, told.Admission.Action+": "+told.Admission.Reason)
	}
	return all
}

// fakeEdge hands the other end of what it takes to the test.
type fakeEdge struct {
	taken chan *net.UnixConn
	lives chan bool     // what an edge says of itself; nil: it does not die
	asked chan struct{} // somebody asks that
	comes chan struct{} // an edge runs when it is closed; nil: it runs already
	mu    sync.Mutex
	kept  []Kept
	last  *Connection
	down  bool
}

func (e *fakeEdge) Take(_ context.Context, connection *Connection) (splice.End, error) {
	if e.comes != nil {
		<-e.comes
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.down {
		return nil, errors.New("it does not run")
	}
	e.kept = append(e.kept, *connection.Kept())
	e.last = connection
	ends, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	e.taken <- unixConn(ends[0])
	if e.lives != nil {
		return &mortalEnd{unixConn(ends[1]), e.lives, e.asked}, nil
	}
	return unixConn(ends[1]), nil
}

// mortalEnd is the way to an edge that may have died.
type mortalEnd struct {
	*net.UnixConn
	lives chan bool
	asked chan struct{}
}

func (e *mortalEnd) Lives(ctx context.Context) bool {
	e.asked <- struct{}{}
	select {
	case lives := <-e.lives:
		return lives
	case <-ctx.Done():
		return false
	}
}

func (e *fakeEdge) JudgeBy(connection *Connection) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.kept = append(e.kept, *connection.Kept())
}

func (e *fakeEdge) judgesBy() Kept {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.kept[len(e.kept)-1]
}

func unixConn(fd int) *net.UnixConn {
	file := os.NewFile(uintptr(fd), "edge")
	defer file.Close()
	made, err := net.FileConn(file)
	if err != nil {
		panic(err)
	}
	return made.(*net.UnixConn)
}

func (w *world) NameAt(address netip.Addr) (string, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	name, ok := w.names[address]
	return name, ok
}

func (w *world) Addresses(_ context.Context, name string) ([]netip.Addr, error) {
	if w.while != nil {
		w.while()
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.asked = append(w.asked, name)
	if address, ok := w.leads[name]; ok {
		return []netip.Addr{netip.MustParseAddr(address)}, nil
	}
	return nil, errors.New(name + " cannot be resolved: NXDOMAIN")
}

func (w *world) Dial(ctx context.Context, connection *Connection, _ *policy.Rule) (*net.TCPConn, error) {
	w.mu.Lock()
	w.dials = append(w.dials, connection.Address)
	fails := w.fails
	w.mu.Unlock()
	if fails != nil {
		return nil, fails
	}
	made, err := (&net.Dialer{}).DialContext(ctx, "tcp", w.server.Addr().String())
	if err != nil {
		return nil, err
	}
	return made.(*net.TCPConn), made.(*net.TCPConn).SetLinger(0)
}

const named = "198.18.0.1"

func newWorld(t *testing.T, rules ...string) *world {
	t.Helper()
	made := &world{
		t: t, server: listen(t), edge: &fakeEdge{taken: make(chan *net.UnixConn, 8)}, owner: &fakeOwner{},
		names: map[netip.Addr]string{netip.MustParseAddr(named): "api.example.com"},
		leads: map[string]string{"api.example.com": "203.0.113.1"},
	}
	egress := NewEgress(made, made, func(address netip.Addr) bool { return address.String() == "203.0.113.200" })
	made.Guest = New(Parts{
		Listener: listen(t), Egress: egress, Edge: made.edge, Dialer: made, Owner: made.owner,
		Original: func(*net.TCPConn) (netip.AddrPort, error) {
			made.mu.Lock()
			defer made.mu.Unlock()
			return made.to, nil
		},
	})
	made.set(rules...)
	t.Cleanup(made.Guest.Close)
	return made
}

// set makes the guest's rules; none: everything public, without rules.
func (w *world) set(texts ...string) {
	w.t.Helper()
	bounds := &policy.Bounds{}
	if len(texts) > 0 {
		raw := make([]json.RawMessage, len(texts))
		for i, text := range texts {
			raw[i] = json.RawMessage(text)
		}
		rules, err := policy.ParseRules(raw)
		if err != nil {
			w.t.Fatal(err)
		}
		bounds.Own = policy.NewGatekeeper(policy.Terms{Rules: rules})
	}
	w.Egress.Set(Rules{Bounds: bounds, Canaries: w.canaries})
	w.JudgeAgain()
}

func listen(t *testing.T) *net.TCPListener {
	t.Helper()
	made, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { made.Close() })
	return made.(*net.TCPListener)
}

// connect is a connection of the guest to somewhere. Nil: it was reset at once.
func (w *world) connect(address string) *net.TCPConn {
	w.t.Helper()
	return w.connectTo(netip.AddrPortFrom(netip.MustParseAddr(address), 443))
}

func (w *world) connectTo(to netip.AddrPort) *net.TCPConn {
	w.t.Helper()
	w.mu.Lock()
	w.to = to
	w.mu.Unlock()
	made, err := net.Dial("tcp", w.Listener.Addr().String())
	if errors.Is(err, unix.ECONNRESET) {
		return nil
	}
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { made.Close() })
	made.SetDeadline(time.Now().Add(waitMost))
	return made.(*net.TCPConn)
}

// isRefused tells whether a connection is reset, perhaps before the guest knows that it was accepted.
func (w *world) isRefused(address string) {
	w.t.Helper()
	if refused := w.connect(address); refused != nil {
		isReset(w.t, refused)
	}
}

func (w *world) accept() *net.TCPConn {
	w.t.Helper()
	w.server.SetDeadline(time.Now().Add(waitMost))
	made, err := w.server.AcceptTCP()
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { made.Close() })
	made.SetDeadline(time.Now().Add(waitMost))
	return made
}

func (w *world) open(address string) (guest, server *net.TCPConn) {
	w.t.Helper()
	guest = w.connect(address)
	server = w.accept()
	exchange(w.t, guest, server)
	return guest, server
}

func exchange(t *testing.T, one, other net.Conn) {
	t.Helper()
	for _, ends := range [][2]net.Conn{{one, other}, {other, one}} {
		if _, err := io.WriteString(ends[0], "ping"); err != nil {
			t.Fatal(err)
		}
		heard := make([]byte, 4)
		if _, err := io.ReadFull(ends[1], heard); err != nil || string(heard) != "ping" {
			t.Fatalf("heard %q, %v", heard, err)
		}
	}
}

func isReset(t *testing.T, at net.Conn) {
	t.Helper()
	if _, err := io.Copy(io.Discard, at); !errors.Is(err, unix.ECONNRESET) {
		t.Errorf("the connection ended with %v", err)
	}
}

func isOpen(t *testing.T, at net.Conn) {
	t.Helper()
	at.SetReadDeadline(time.Now().Add(100 * time.Millisecond))
	var timeout net.Error
	if _, err := at.Read(make([]byte, 1)); !errors.As(err, &timeout) || !timeout.Timeout() {
		t.Errorf("the connection is not open: %v", err)
	}
	at.SetReadDeadline(time.Now().Add(waitMost))
}

func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	for end := time.Now().Add(waitMost); !is(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("never so: " + what)
		}
	}
}
