package resolve

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"net"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/miekg/dns"
)

// server is a nameserver on loopback. It answers a question with these messages; by a stream, with the first one.
type server struct {
	address netip.AddrPort

	mu      sync.Mutex
	asked   [][]byte // by datagram
	streams [][]byte
	ports   map[string]bool // from which it was asked
}

func serve(t testing.TB, answer func(asked []byte, by Network) [][]byte) *server {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	made := &server{address: listener.Addr().(*net.TCPAddr).AddrPort(), ports: map[string]bool{}}
	datagrams, err := net.ListenPacket("udp", made.address.String())
	must(t, err)
	var all sync.WaitGroup
	all.Go(func() { made.serveDatagrams(datagrams, answer) })
	all.Go(func() { made.serveStreams(listener, answer) })
	t.Cleanup(func() {
		datagrams.Close()
		listener.Close()
		all.Wait()
	})
	return made
}

func (s *server) serveDatagrams(datagrams net.PacketConn, answer func([]byte, Network) [][]byte) {
	buffer := make([]byte, dns.MaxMsgSize)
	for {
		count, asker, err := datagrams.ReadFrom(buffer)
		if err != nil {
			return
		}
		asked := bytes.Clone(buffer[:count])
		s.mu.Lock()
		s.asked = append(s.asked, asked)
		s.ports[asker.String()] = true
		s.mu.Unlock()
		for _, message := range answer(asked, Datagram) {
			datagrams.WriteTo(message, asker)
		}
	}
}

func (s *server) serveStreams(listener net.Listener, answer func([]byte, Network) [][]byte) {
	for {
		stream, err := listener.Accept()
		if err != nil {
			return
		}
		connection := &dns.Conn{Conn: stream}
		asked, err := connection.ReadMsgHeader(nil)
		if err == nil {
			s.mu.Lock()
			s.streams = append(s.streams, asked)
			s.mu.Unlock()
			for _, message := range answer(asked, Stream)[:1] {
				connection.Write(message)
			}
		}
		stream.Close()
	}
}

// questions are those that it was asked, by datagram and by stream.
func (s *server) questions() [][]byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Concat(s.asked, s.streams)
}

func (s *server) times() (datagrams, streams int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.asked), len(s.streams)
}

// knowing is a nameserver that has these records and no others.
func knowing(t testing.TB, records ...string) *server {
	return serve(t, func(asked []byte, _ Network) [][]byte { return [][]byte{replyWith(t, asked, records...)} })
}

// replyWith has those of these records that were asked for, and links to them.
func replyWith(t testing.TB, asked []byte, records ...string) []byte {
	query, reply := new(dns.Msg), new(dns.Msg)
	if err := query.Unpack(asked); err != nil {
		t.Error(err)
		return nil
	}
	reply.SetReply(query)
	reply.Rcode = dns.RcodeNameError
	for _, text := range records {
		record, err := dns.NewRR(text)
		if err != nil {
			t.Error(err)
			return nil
		}
		question := query.Question[0]
		if record.Header().Name == question.Name {
			reply.Rcode = dns.RcodeSuccess
		}
		kind := record.Header().Rrtype
		if record.Header().Name == question.Name && (kind == question.Qtype || kind == dns.TypeCNAME) {
			reply.Answer = append(reply.Answer, record)
		}
	}
	wire, err := reply.Pack()
	if err != nil {
		t.Error(err)
	}
	return wire
}

func failing(t testing.TB, code int) *server {
	return serve(t, func(asked []byte, _ Network) [][]byte { return [][]byte{coded(asked, code)} })
}

// coded is the reply to a question with a code, and nothing else.
func coded(asked []byte, code int) []byte {
	reply := bytes.Clone(asked)
	binary.BigEndian.PutUint16(reply[2:], response|uint16(code))
	return reply
}

// silent never answers.
func silent(t testing.TB) *server {
	return serve(t, func([]byte, Network) [][]byte { return [][]byte{nil} })
}

// closedPort is one at which nobody listens.
func closedPort(t testing.TB) netip.AddrPort {
	t.Helper()
	taken, err := net.ListenPacket("udp", "127.0.0.1:0")
	must(t, err)
	defer taken.Close()
	return taken.LocalAddr().(*net.UDPAddr).AddrPort()
}

func clientOf(servers ...*server) *Client {
	var addresses []netip.AddrPort
	for _, each := range servers {
		addresses = append(addresses, each.address)
	}
	return &Client{Nameservers: func() []netip.AddrPort { return addresses }}
}

func queryFor(t testing.TB, name string, kind uint16) []byte {
	t.Helper()
	query := new(dns.Msg).SetQuestion(name, kind)
	query.Id = 7
	wire, err := query.Pack()
	must(t, err)
	return wire
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func codeOf(t testing.TB, err error) int {
	t.Helper()
	var failed *Error
	if !errors.As(err, &failed) {
		t.Fatalf("%v has no code", err)
	}
	return failed.Code
}

// within is a context for one test.
func within(t testing.TB, most time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), most)
	t.Cleanup(cancel)
	return ctx
}

// until waits for what another goroutine does.
func until(t testing.TB, what string, holds func() bool) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); !holds(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%s does not come", what)
		}
	}
}
