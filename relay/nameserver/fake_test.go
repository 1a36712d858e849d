package nameserver

import (
	"bytes"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/miekg/dns"

	"atoll/policy"
	"atoll/relay/names"
	"atoll/relay/resolve"
)

// rules are a judge that knows a name by a table.
type rules struct {
	mu        sync.Mutex
	verdicts  map[string]policy.Admission // of texts as they were asked for; others are denied
	unneeded  bool
	proxied   bool
	closed    map[netip.Addr]string
	unopened  []netip.Addr
	noted     []note
	unplugged []string
}

type note struct{ action, reason, name, kind string }

var allowed = policy.Admission{Action: policy.Allow}

func allowing(texts ...string) *rules {
	made := &rules{verdicts: map[string]policy.Admission{}, closed: map[netip.Addr]string{}}
	for _, text := range texts {
		made.verdicts[text] = allowed
	}
	return made
}

func (r *rules) Needed() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return !r.unneeded
}

func (r *rules) Name(text string) policy.Admission {
	if verdict, ok := r.verdicts[text]; ok {
		return verdict
	}
	return policy.Admission{Action: policy.Deny, Reason: "no rule allows " + text}
}

func (r *rules) MayResolve(string) bool { return !r.proxied }

func (r *rules) MayLeadTo(_ string, address netip.Addr) bool {
	return r.closed[address] == "" && !slices.Contains(r.unopened, address)
}

func (r *rules) Closed(address netip.Addr) string { return r.closed[address] }

func (r *rules) Note(verdict policy.Admission, name, kind string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.noted = append(r.noted, note{verdict.Action, verdict.Reason, name, kind})
}

func (r *rules) Unplug(reason string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.unplugged = append(r.unplugged, reason)
}

func (r *rules) told() ([]note, []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.noted), slices.Clone(r.unplugged)
}

// upstream is a nameserver of the host. It has these records and no others.
type upstream struct {
	address netip.AddrPort
	records []dns.RR

	mu    sync.Mutex
	code  int           // in place of an answer, if it is not 0
	hold  chan struct{} // it answers when this is closed, if there is one
	asked []dns.Question
}

func serveNames(t testing.TB, records ...string) *upstream {
	t.Helper()
	made := &upstream{}
	for _, text := range records {
		record, err := dns.NewRR(text)
		must(t, err)
		made.records = append(made.records, record)
	}
	listener, datagrams := sockets(t)
	made.address = listener.Addr().(*net.TCPAddr).AddrPort()
	for _, each := range []*dns.Server{{Listener: listener, Handler: made}, {PacketConn: datagrams, Handler: made}} {
		started, ended := make(chan struct{}), make(chan struct{})
		each.NotifyStartedFunc = func() { close(started) }
		go func() {
			defer close(ended)
			each.ActivateAndServe()
		}()
		<-started
		t.Cleanup(func() {
			each.Shutdown()
			<-ended
		})
	}
	return made
}

func (u *upstream) ServeDNS(to dns.ResponseWriter, query *dns.Msg) {
	question := query.Question[0]
	u.mu.Lock()
	u.asked = append(u.asked, question)
	code, hold := u.code, u.hold
	u.mu.Unlock()
	if hold != nil {
		<-hold
	}
	reply := new(dns.Msg).SetRcode(query, dns.RcodeNameError)
	for _, record := range u.records {
		if header := record.Header(); header.Name == question.Name {
			reply.Rcode = dns.RcodeSuccess
			if header.Rrtype == question.Qtype {
				reply.Answer = append(reply.Answer, record)
			}
		}
	}
	if code != 0 {
		reply.SetRcode(query, code)
		if query.IsEdns0() != nil {
			reply.SetEdns0(resolve.PayloadMost, false)
		}
	}
	if to.LocalAddr().Network() == "udp" {
		reply.Truncate(resolve.PayloadMost)
	}
	to.WriteMsg(reply)
}

// fail has it answer with a code.
func (u *upstream) fail(code int) *upstream {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.code = code
	return u
}

// pause has it answer when the test says so, at the latest when it ends.
func (u *upstream) pause(t testing.TB) (resume func()) {
	hold := make(chan struct{})
	u.mu.Lock()
	u.hold = hold
	u.mu.Unlock()
	resume = sync.OnceFunc(func() {
		u.mu.Lock()
		defer u.mu.Unlock()
		u.hold = nil
		close(hold)
	})
	t.Cleanup(resume)
	return resume
}

func (u *upstream) times() int {
	u.mu.Lock()
	defer u.mu.Unlock()
	return len(u.asked)
}

func (u *upstream) nameservers() []netip.AddrPort { return []netip.AddrPort{u.address} }

// sockets are one of each kind, at the same port.
func sockets(t testing.TB) (net.Listener, net.PacketConn) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	datagrams, err := net.ListenPacket("udp", listener.Addr().String())
	must(t, err)
	return listener, datagrams
}

func table(t testing.TB) *names.Table {
	t.Helper()
	file, err := os.OpenFile(filepath.Join(t.TempDir(), "names"), os.O_RDWR|os.O_CREATE, 0o600)
	must(t, err)
	made, err := names.Open(file, time.Now)
	must(t, err)
	t.Cleanup(func() { made.Close() })
	return made
}

func partsOf(t testing.TB, judge Judge, nameservers func() []netip.AddrPort) Parts {
	t.Helper()
	listener, datagrams := sockets(t)
	client := &resolve.Client{Nameservers: nameservers}
	return Parts{
		Datagrams: datagrams, Listener: listener, Client: client, Resolver: resolve.NewResolver(client, time.Now),
		Names: table(t), Judge: judge,
	}
}

func nobody() []netip.AddrPort { return nil }

// served is a nameserver for a guest. The test may change it before it starts.
func served(t testing.TB, judge Judge, nameservers func() []netip.AddrPort, changes ...func(*Server)) *Server {
	t.Helper()
	made := prepared(partsOf(t, judge, nameservers))
	for _, change := range changes {
		change(made)
	}
	made.start()
	t.Cleanup(made.Close)
	return made
}

// asking is a socket of the guest.
func asking(t testing.TB, server *Server, network string) *dns.Conn {
	t.Helper()
	socket, err := net.Dial(network, server.parts.Listener.Addr().String())
	must(t, err)
	t.Cleanup(func() { socket.Close() })
	must(t, socket.SetDeadline(time.Now().Add(30*time.Second)))
	return &dns.Conn{Conn: socket, UDPSize: dns.MaxMsgSize}
}

// exchanged is what comes back on a socket.
func exchanged(t testing.TB, socket *dns.Conn, message []byte) []byte {
	t.Helper()
	_, err := socket.Write(message)
	must(t, err)
	answer, err := socket.ReadMsgHeader(nil)
	must(t, err)
	return answer
}

// question is a message with one question, and with options.
func question(name string, kind uint16) *dns.Msg {
	return new(dns.Msg).SetQuestion(name, kind).SetEdns0(4096, false)
}

func packed(t testing.TB, message *dns.Msg) []byte {
	t.Helper()
	wire, err := message.Pack()
	must(t, err)
	return wire
}

// answered is what a nameserver with rules answers.
func answered(t testing.TB, by *named, message *dns.Msg) *dns.Msg {
	t.Helper()
	query := packed(t, message)
	wire := by.answer(t.Context(), query)
	if wire == nil {
		t.Fatalf("%s has no answer", message.Question[0].String())
	}
	reply := new(dns.Msg)
	must(t, reply.Unpack(wire))
	isSame := bytes.Equal(resolve.Question(wire), resolve.Question(query))
	if reply.Id != message.Id || !reply.Response || !reply.RecursionAvailable || !isSame {
		t.Fatalf("%v does not answer %v", reply, message)
	}
	return reply
}

func namedBy(t testing.TB, judge Judge, nameservers func() []netip.AddrPort) *named {
	t.Helper()
	client := &resolve.Client{Nameservers: nameservers}
	return &named{judge, resolve.NewResolver(client, time.Now), table(t)}
}

// reasonIn is the extended error of an answer.
func reasonIn(reply *dns.Msg) string {
	options := reply.IsEdns0()
	if options == nil {
		return "no options"
	}
	for _, option := range options.Option {
		if why, ok := option.(*dns.EDNS0_EDE); ok {
			return fmt.Sprint(why.InfoCode, " ", why.ExtraText)
		}
	}
	return ""
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// until waits for what another goroutine does.
func until(t testing.TB, what string, holds func() bool) {
	t.Helper()
	for end := time.Now().Add(30 * time.Second); !holds(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%s does not come", what)
		}
	}
}
