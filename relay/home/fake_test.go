package home

import (
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/miekg/dns"
	"golang.org/x/sys/unix"

	"atoll/channel"
	"atoll/edge/seen"
	"atoll/relay/control"
)

const waitMost = 20 * time.Second

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// fakeKernel takes the loopback addresses for this host's own, or fails.
type fakeKernel struct {
	mu    sync.Mutex
	fails error
}

func (k *fakeKernel) Has(address netip.Addr) (bool, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return address.IsLoopback(), k.fails
}

// world is a home that is served, and what its guests see.
type world struct {
	*Home
	t      *testing.T
	path   string
	kernel *fakeKernel
	ended  chan error

	mu sync.Mutex
	to netip.AddrPort // where the next connection of a guest goes
}

func newWorld(t *testing.T, edges Edges) *world {
	t.Helper()
	made := &world{
		t: t, path: filepath.Join(t.TempDir(), "relay"), kernel: &fakeKernel{}, ended: make(chan error, 1),
	}
	made.Home = New(Parts{
		Kernel: made.kernel, Edges: edges, Confined: []string{"nothing"}, User: os.Getuid(),
		Original: func(*net.TCPConn) (netip.AddrPort, error) {
			made.mu.Lock()
			defer made.mu.Unlock()
			return made.to, nil
		},
	})
	listener, err := net.ListenUnix("unixpacket", &net.UnixAddr{Name: made.path, Net: "unixpacket"})
	must(t, err)
	go func() { made.ended <- made.Serve(listener) }()
	t.Cleanup(func() {
		made.End()
		if err := <-made.ended; err != nil {
			t.Error(err)
		}
	})
	return made
}

// client is who asks the relay.
type client struct {
	*channel.Channel
	t       *testing.T
	last    int64
	answers chan answer
	events  chan event
	gone    chan struct{} // closed when the relay has closed it
}

type answer struct {
	control.Answer
	files []*os.File
}

// event has the fields of all of them.
type event struct {
	Op      string       `json:"op"`
	ID      int64        `json:"id"`
	Link    string       `json:"link"`
	Reason  string       `json:"reason"`
	From    string       `json:"from"`
	Ref     string       `json:"ref"`
	Port    int          `json:"port"`
	Text    string       `json:"text"`
	Pair    string       `json:"pair"`
	Entries []seen.Entry `json:"entries"`
}

// deaf connects, and reads nothing.
func (w *world) deaf() *client {
	w.t.Helper()
	conn, err := net.DialUnix("unixpacket", nil, &net.UnixAddr{Name: w.path, Net: "unixpacket"})
	must(w.t, err)
	made := &client{
		Channel: channel.New(conn), t: w.t, answers: make(chan answer, 16), events: make(chan event, 1024),
		gone: make(chan struct{}),
	}
	w.t.Cleanup(func() { made.Close() })
	return made
}

func (w *world) connect() *client {
	w.t.Helper()
	made := w.deaf()
	go made.listen()
	return made
}

func (c *client) listen() {
	defer close(c.gone)
	for {
		var text json.RawMessage
		files, err := c.Receive(&text)
		if err != nil {
			return
		}
		var got answer
		var told event
		if json.Unmarshal(text, &got.Answer) == nil && got.Op == "answer" {
			got.files = files
			c.answers <- got
		} else if json.Unmarshal(text, &told) == nil {
			c.events <- told
		}
	}
}

// owner is a client that has said hello.
func (w *world) owner() *client {
	w.t.Helper()
	made := w.brief()
	made.stay(os.Getpid())
	return made
}

// brief is an owner with whom the relay ends.
func (w *world) brief() *client {
	w.t.Helper()
	made := w.connect()
	must(w.t, made.do(control.Message{Op: "hello", Protocol: control.Protocol}, nil))
	return made
}

// stay has the relay stay without an owner as long as a process runs.
func (c *client) stay(pid int) {
	c.t.Helper()
	number, err := unix.PidfdOpen(pid, unix.PIDFD_NONBLOCK)
	must(c.t, err)
	process := os.NewFile(uintptr(number), "process")
	defer process.Close()
	must(c.t, c.do(control.Message{Op: "stay"}, nil, process))
}

// do asks, and reads the content of the answer.
func (c *client) do(message control.Message, into any, files ...*os.File) error {
	c.t.Helper()
	c.last++
	message.ID = c.last
	must(c.t, c.Send(message, files...))
	select {
	case got := <-c.answers:
		return c.read(got, into)
	case <-c.gone:
		select {
		case got := <-c.answers: // the last one before the end
			return c.read(got, into)
		default:
			return errors.New("the relay has closed it")
		}
	case <-time.After(waitMost):
		c.t.Fatalf("nobody answers %+v", message)
	}
	return nil
}

func (c *client) read(got answer, into any) error {
	c.t.Helper()
	if got.ID != c.last {
		c.t.Fatalf("%+v answers %d", got, c.last)
	}
	if got.Error != "" {
		return errors.New(got.Error)
	}
	if len(got.files) == 1 {
		return channel.Content(got.files[0], into)
	}
	if into == nil {
		return nil
	}
	return json.Unmarshal(got.Content, into)
}

func (c *client) with(message control.Message, content any) error {
	c.t.Helper()
	file, err := channel.Sealed(content)
	must(c.t, err)
	defer file.Close()
	return c.do(message, nil, file)
}

// rules gives a link rules; an empty text: everything public.
func (c *client) rules(link, rules string) {
	c.t.Helper()
	must(c.t, c.with(control.Message{Op: "rules", Link: link, Sandbox: "s-" + link, Version: 1}, json.RawMessage(rules)))
}

// hears waits for an event, and drops others.
func (c *client) hears(is func(event) bool) event {
	c.t.Helper()
	end := time.After(waitMost)
	for {
		select {
		case told := <-c.events:
			if is(told) {
				return told
			}
		case <-c.gone:
			c.t.Fatal("the relay has closed it")
		case <-end:
			c.t.Fatal("it never hears of it")
		}
	}
}

func of(op string) func(event) bool { return func(told event) bool { return told.Op == op } }

// decision waits until one is told, and gives it.
func (c *client) decision(is func(seen.Entry) bool) seen.Entry {
	c.t.Helper()
	var found seen.Entry
	c.hears(func(told event) bool {
		for _, each := range told.Entries {
			if is(each) {
				found = each
				return true
			}
		}
		return false
	})
	return found
}

func reason(text string) func(seen.Entry) bool {
	return func(each seen.Entry) bool { return each.Reason == text }
}

// line is a link as the supervisor and the guest have it.
type line struct {
	guests    *net.TCPListener
	questions *net.UDPConn
	streams   *net.TCPListener
	names     *os.File
}

// add adds a link to the relay.
func (c *client) add(id string) *line {
	c.t.Helper()
	made := makeLine(c.t)
	files := made.files(c.t)
	defer channel.CloseAll(files)
	must(c.t, c.do(control.Message{Op: "link", Link: id}, nil, files...))
	return made
}

func makeLine(t testing.TB) *line {
	t.Helper()
	questions, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(netip.MustParseAddrPort("127.0.0.1:0")))
	must(t, err)
	t.Cleanup(func() { questions.Close() })
	names, err := os.CreateTemp(t.TempDir(), "names")
	must(t, err)
	return &line{guests: listen(t), questions: questions, streams: listen(t), names: names}
}

func (l *line) files(t testing.TB) []*os.File {
	t.Helper()
	guests, err := l.guests.File()
	must(t, err)
	questions, err := l.questions.File()
	must(t, err)
	streams, err := l.streams.File()
	must(t, err)
	names, err := os.OpenFile(l.names.Name(), os.O_RDWR, 0)
	must(t, err)
	return []*os.File{guests, questions, streams, names}
}

func listen(t testing.TB) *net.TCPListener {
	t.Helper()
	made, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	t.Cleanup(func() { made.Close() })
	return made.(*net.TCPListener)
}

// knows has a guest know a name by the address that stands for it.
func (c *client) knows(link, name string) netip.Addr {
	c.t.Helper()
	address := netip.MustParseAddr("198.18.0.1")
	must(c.t, c.with(control.Message{Op: "take_over", Link: link}, []control.Name{{Address: address, Name: name}}))
	return address
}

// visit is a connection of a guest to an address. Nil: it was reset at once.
func (w *world) visit(link *line, to netip.AddrPort) *net.TCPConn {
	w.t.Helper()
	w.mu.Lock()
	w.to = to
	w.mu.Unlock()
	made, err := net.Dial("tcp", link.guests.Addr().String())
	if errors.Is(err, unix.ECONNRESET) {
		return nil
	}
	must(w.t, err)
	w.t.Cleanup(func() { made.Close() })
	must(w.t, made.SetDeadline(time.Now().Add(waitMost)))
	return made.(*net.TCPConn)
}

// isRefused tells whether a connection is reset, perhaps before the guest knows that it was accepted.
func (w *world) isRefused(link *line, to netip.AddrPort) {
	w.t.Helper()
	if made := w.visit(link, to); made != nil {
		isReset(w.t, made)
	}
}

func isReset(t *testing.T, at net.Conn) {
	t.Helper()
	if _, err := io.Copy(io.Discard, at); !errors.Is(err, unix.ECONNRESET) {
		t.Errorf("the connection ended with %v", err)
	}
}

// local is a link whose guest may reach a server of this host.
func (w *world) local(by *client, id string) (link *line, server *net.TCPListener, to netip.AddrPort) {
	w.t.Helper()
	link, server = by.add(id), listen(w.t)
	at := server.Addr().(*net.TCPAddr).AddrPort()
	rule, err := json.Marshal(map[string]any{"own": map[string]any{"rules": []any{map[string]any{
		"action": "allow", "hosts": []string{"host.atoll.internal"}, "ports": []int{int(at.Port())},
	}}}})
	must(w.t, err)
	by.rules(id, string(rule))
	return link, server, netip.AddrPortFrom(by.knows(id, "host.atoll.internal"), at.Port())
}

func accept(t *testing.T, server *net.TCPListener) *net.TCPConn {
	t.Helper()
	must(t, server.SetDeadline(time.Now().Add(waitMost)))
	made, err := server.AcceptTCP()
	must(t, err)
	t.Cleanup(func() { made.Close() })
	must(t, made.SetDeadline(time.Now().Add(waitMost)))
	return made
}

func exchange(t *testing.T, one, other net.Conn) {
	t.Helper()
	for _, ends := range [][2]net.Conn{{one, other}, {other, one}} {
		_, err := io.WriteString(ends[0], "ping")
		must(t, err)
		heard := make([]byte, 4)
		if _, err := io.ReadFull(ends[1], heard); err != nil || string(heard) != "ping" {
			t.Fatalf("heard %q, %v", heard, err)
		}
	}
}

// ask asks the nameserver of a guest.
func (l *line) ask(t *testing.T, name string, kind uint16) *dns.Msg {
	t.Helper()
	query := new(dns.Msg).SetQuestion(dns.Fqdn(name), kind)
	query.SetEdns0(1232, false)
	asker := &dns.Client{Timeout: waitMost}
	reply, _, err := asker.Exchange(query, l.questions.LocalAddr().String())
	must(t, err)
	return reply
}

func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	for end := time.Now().Add(waitMost); !is(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("never so: " + what)
		}
	}
}
