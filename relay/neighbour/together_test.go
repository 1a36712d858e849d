package neighbour

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"atoll/policy"
	"atoll/relay/dial"
	"atoll/relay/guest"
	"atoll/relay/splice"
)

const (
	name    = "api.example.com"
	address = "198.18.0.1" // of the name, inside
	leads   = "203.0.113.1"
)

// world is a guest, its relay, an edge beside it, and a server to which everything leads.
type world struct {
	*guest.Guest
	t      *testing.T
	edge   *process
	beside *Neighbour
	side   *Side
	server netip.AddrPort
	named  string // what the address stands for
}

func newWorld(t *testing.T, handler http.HandlerFunc) *world {
	t.Helper()
	return newWorldTo(t, name, handler)
}

// newWorldTo has a guest whose every connection is to this name.
func newWorldTo(t *testing.T, named string, handler http.HandlerFunc) *world {
	t.Helper()
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	w := &world{t: t, beside: New(), named: named, server: netip.MustParseAddrPort(server.Listener.Addr().String())}
	w.side = w.beside.Side("s", inspected{w})
	w.Guest = guest.New(guest.Parts{
		Listener: listener.(*net.TCPListener), Edge: w, Dialer: w, Owner: w,
		Egress:   guest.NewEgress(w, w, func(netip.Addr) bool { return false }),
		Original: func(*net.TCPConn) (netip.AddrPort, error) { return netip.MustParseAddrPort(address + ":80"), nil },
	})
	t.Cleanup(func() {
		w.Close()
		w.side.Close()
	})
	w.edge = start(t)
	w.edge.attach(w.beside)
	return w
}

// inspected is the guest, which is made after its side.
type inspected struct{ *world }

func (w *world) Take(ctx context.Context, connection *guest.Connection) (splice.End, error) {
	return w.side.Take(ctx, connection)
}

func (w *world) JudgeBy(connection *guest.Connection) { w.side.JudgeBy(connection) }

func (w *world) Dial(ctx context.Context, connection *guest.Connection, _ *policy.Rule) (*net.TCPConn, error) {
	if connection.Address != leads {
		return nil, errors.New("it leads to " + connection.Address)
	}
	return dial.To(ctx, w.server, dial.Patience)
}

func (w *world) Tell(guest.Told) bool             { return true }
func (w *world) Unplug(string)                    {}
func (w *world) Wake(string)                      {}
func (w *world) NameAt(netip.Addr) (string, bool) { return w.named, true }

func (w *world) Addresses(context.Context, string) ([]netip.Addr, error) {
	return []netip.Addr{netip.MustParseAddr(leads)}, nil
}

// rules sets the relay's.
func (w *world) rules(version int64, texts ...string) {
	w.t.Helper()
	raw := make([]json.RawMessage, len(texts))
	for i, each := range texts {
		raw[i] = json.RawMessage(each)
	}
	rules, err := policy.ParseRules(raw)
	must(w.t, err)
	own := policy.NewGatekeeper(policy.Terms{Rules: rules})
	w.Egress.Set(guest.Rules{Version: version, Bounds: &policy.Bounds{Own: own}})
	w.JudgeAgain()
}

// connection is one of the guest.
type connection struct {
	t      *testing.T
	socket net.Conn
	reader *bufio.Reader
}

func (w *world) connect() *connection {
	w.t.Helper()
	socket, err := net.Dial("tcp", w.Listener.Addr().String())
	must(w.t, err)
	w.t.Cleanup(func() { socket.Close() })
	socket.SetDeadline(time.Now().Add(20 * time.Second))
	return &connection{w.t, socket, bufio.NewReader(socket)}
}

func (c *connection) ask(path string) {
	c.t.Helper()
	_, err := fmt.Fprintf(c.socket, "GET %s HTTP/1.1\r\nHost: %s\r\n\r\n", path, name)
	must(c.t, err)
}

// gets asks for a path, and is answered with this status and text.
func (c *connection) gets(path string, status int, part string) {
	c.t.Helper()
	c.ask(path)
	c.hears(status, part)
}

func (c *connection) hears(status int, part string) {
	c.t.Helper()
	response, err := http.ReadResponse(c.reader, nil)
	must(c.t, err)
	text, err := io.ReadAll(response.Body)
	must(c.t, err)
	if response.StatusCode != status || !strings.Contains(string(text), part) {
		c.t.Fatalf("the answer is %d: %s", response.StatusCode, text)
	}
}

func (c *connection) isReset() {
	c.t.Helper()
	if _, err := io.Copy(io.Discard, c.socket); !errors.Is(err, unix.ECONNRESET) {
		c.t.Errorf("the connection ended with %v", err)
	}
}

func echo(writer http.ResponseWriter, request *http.Request) {
	io.WriteString(writer, "at "+request.URL.Path)
}

func paths(text string) string {
	return `{"action":"allow","hosts":["` + name + `"],"paths":["` + text + `"]}`
}

func TestRequestsAreJudgedByTheEdgeBeside(t *testing.T) {
	w := newWorld(t, echo)
	w.edge.policy(1, paths("/open/*"))
	w.rules(1, paths("/open/*"))
	for range 2 {
		c := w.connect()
		c.gets("/open/1", 200, "at /open/1")
		c.gets("/secret", 403, "egress_denied")
	}
}

func TestAChangeReachesAnOpenConnectionInEitherOrder(t *testing.T) {
	w := newWorld(t, echo)
	w.edge.policy(1, paths("/1"))
	w.rules(1, paths("/1"))
	c := w.connect()
	c.gets("/1", 200, "at /1")
	for version := int64(2); version < 8; version++ {
		now := paths(fmt.Sprint("/", version))
		other := `{"action":"deny","hosts":["other.example"]}`
		changes := []func(){
			func() { w.edge.policy(version, other, now) },
			func() { w.rules(version, other, now) },
		}
		changes[version%2]()
		changes[1-version%2]()
		// A request that comes before the edge has heard of both waits, or is judged by the rules of before.
		eventually(t, "it is judged by the new rules", func() bool {
			c.ask(fmt.Sprint("/", version))
			response, err := http.ReadResponse(c.reader, nil)
			must(t, err)
			io.Copy(io.Discard, response.Body)
			return response.StatusCode == 200
		})
		c.gets(fmt.Sprint("/", version-1), 403, "egress_denied")
	}
}

func TestWhatGoesOnIsCutByAChange(t *testing.T) {
	ended := make(chan struct{})
	w := newWorld(t, func(writer http.ResponseWriter, request *http.Request) {
		writer.(http.Flusher).Flush()
		<-request.Context().Done()
		close(ended)
	})
	w.edge.policy(1, paths("/1"))
	w.rules(1, paths("/1"))
	c := w.connect()
	c.ask("/1")
	if _, err := http.ReadResponse(c.reader, nil); err != nil {
		t.Fatal(err)
	}
	w.rules(2, paths("/2"))
	w.edge.policy(2, paths("/2"))
	if _, err := io.Copy(io.Discard, c.reader); errors.Is(err, unix.ETIMEDOUT) {
		t.Error("it goes on")
	}
	<-ended
}

func TestAConnectionMayComeBeforeItsPolicy(t *testing.T) {
	w := newWorld(t, echo)
	w.rules(1, paths("/1"))
	c := w.connect()
	c.ask("/1")
	eventually(t, "it is there", func() bool { return len(w.Flows()) == 1 })
	w.edge.policy(1, paths("/1"))
	c.hears(200, "at /1")
}

func TestAnEdgeThatEndsIsFollowedByAnother(t *testing.T) {
	w := newWorld(t, echo)
	w.edge.policy(1, paths("/1"))
	w.rules(1, paths("/1"))
	var open []*connection
	for range 50 {
		c := w.connect()
		c.gets("/1", 200, "at /1")
		open = append(open, c)
	}
	w.edge.kill()
	for _, each := range open {
		each.isReset() // and never ended as if all had been said
	}
	eventually(t, "the relay knows", func() bool { return w.beside.current() == nil })
	waits := w.connect()
	waits.ask("/1")
	w.edge = start(t)
	w.edge.attach(w.beside)
	w.edge.policy(1, paths("/1"))
	waits.hears(200, "at /1")
	w.connect().gets("/2", 403, "egress_denied")
}

func TestAnAnswerThatEndsWithItsConnectionIsEnded(t *testing.T) {
	w := newWorld(t, echo)
	w.edge.policy(1, paths("/1"))
	w.rules(1, paths("/1"))
	for range 50 {
		c := w.connect()
		_, err := fmt.Fprintf(c.socket, "GET /1 HTTP/1.1\r\nHost: %s\r\nConnection: close\r\n\r\n", name)
		must(t, err)
		if text, err := io.ReadAll(c.reader); err != nil || !strings.HasSuffix(string(text), "at /1") {
			t.Fatalf("the answer is %q, %v", text, err)
		}
	}
}

func TestAConnectionEndsWhereTheEdgeHasNoPolicyForIt(t *testing.T) {
	w := newWorld(t, echo)
	w.edge.policy(2, paths("/1"))
	w.rules(1, paths("/1")) // and those of 2 never come
	w.connect().isReset()
}
