package nameserver

import (
	"bytes"
	"errors"
	"io"
	"net"
	"net/netip"
	"os"
	"runtime"
	"testing"
	"time"

	"github.com/miekg/dns"

	"atoll/relay/pace"
)

// without is a judge without rules.
func without() *rules {
	made := allowing()
	made.unneeded = true
	return made
}

func codeOf(wire []byte) int { return int(wire[3] & 0xf) }

func TestWithoutRulesAnAnswerPassesAsItIsButForItsID(t *testing.T) {
	up := serveNames(t, "example.org. 60 IN A 203.0.113.1", "example.org. 60 IN AAAA 2001:db8::1")
	server := served(t, without(), up.nameservers)
	for _, network := range []string{"udp", "tcp"} {
		socket := asking(t, server, network)
		for number, kind := range []uint16{dns.TypeA, dns.TypeAAAA, dns.TypeTXT} {
			query := question("Example.org.", kind)
			query.Question[0].Name = "example.org."
			query.Id = uint16(number + 1)
			reply := new(dns.Msg)
			must(t, reply.Unpack(exchanged(t, socket, packed(t, query))))
			want := 1
			if kind == dns.TypeTXT {
				want = 0
			}
			if reply.Id != query.Id || reply.Rcode != dns.RcodeSuccess || len(reply.Answer) != want {
				t.Errorf("%s: %v", network, reply)
			}
		}
	}
	if up.times() != 6 {
		t.Errorf("%d questions were asked", up.times())
	}
}

func TestTheGatewayOfModelsIsKnownHereAlsoWithoutRules(t *testing.T) {
	up := serveNames(t, "models.atoll.internal. 60 IN A 203.0.113.1")
	judge := without()
	for _, text := range []string{"models.atoll.internal", "mODELS.atoll.internal"} {
		judge.verdicts[text] = allowed
	}
	for _, each := range []struct {
		judge *rules
		code  int
	}{{judge, dns.RcodeSuccess}, {without(), dns.RcodeNameError}} {
		server := served(t, each.judge, up.nameservers)
		for _, name := range []string{"models.atoll.internal.", "mODELS.atoll.internal."} {
			query := question(name, dns.TypeA)
			query.Question[0].Name = name
			reply := new(dns.Msg)
			must(t, reply.Unpack(exchanged(t, asking(t, server, "udp"), packed(t, query))))
			if reply.Rcode != each.code || each.code == dns.RcodeSuccess && len(reply.Answer) != 1 {
				t.Errorf("%v", reply)
			}
		}
	}
	if up.times() != 0 {
		t.Error("somebody outside is asked")
	}
}

func TestRubbishIsAnsweredHereOrNotAtAll(t *testing.T) {
	up := serveNames(t)
	for _, judge := range []*rules{without(), allowing()} {
		server := served(t, judge, up.nameservers)
		whole := packed(t, question("example.org.", dns.TypeA))
		notify, pointing, two := bytes.Clone(whole), bytes.Clone(whole), bytes.Clone(whole)
		notify[2] |= 0x20
		pointing[12] = 0xc0
		two[5] = 2
		reply := bytes.Clone(whole)
		reply[2] |= 0x80
		long := append(bytes.Clone(whole), make([]byte, questionMost)...)
		for _, network := range []string{"udp", "tcp"} {
			for _, message := range [][]byte{notify, pointing, two, whole[:14], long} {
				answer := exchanged(t, asking(t, server, network), message)
				if !bytes.Equal(answer[:2], message[:2]) || codeOf(answer) != dns.RcodeFormatError || len(answer) > len(message) {
					t.Errorf("%s: %q: %q", network, message, answer)
				}
			}
		}
		socket := asking(t, server, "udp")
		for _, silent := range [][]byte{nil, whole[:11], reply} {
			socket.Conn.Write(silent)
			stream := asking(t, server, "tcp")
			stream.Write(silent)
			if _, err := stream.ReadMsgHeader(nil); !errors.Is(err, io.EOF) && !isReset(err) {
				t.Errorf("%q has an answer on a stream: %v", silent, err)
			}
		}
		if answer := exchanged(t, socket, notify); !bytes.Equal(answer[:2], notify[:2]) {
			t.Errorf("something was answered before: %q", answer)
		}
	}
	if up.times() != 0 {
		t.Errorf("%d questions were asked", up.times())
	}
}

func isReset(err error) bool {
	var failed *net.OpError
	return errors.As(err, &failed) && !errors.Is(err, os.ErrDeadlineExceeded)
}

func TestWithoutAnyNameserverTheAnswerSaysSo(t *testing.T) {
	server := served(t, without(), nobody)
	for _, network := range []string{"udp", "tcp"} {
		query := packed(t, question("example.org.", dns.TypeA))
		answer := exchanged(t, asking(t, server, network), query)
		if !bytes.Equal(answer[:2], query[:2]) || codeOf(answer) != dns.RcodeServerFailure {
			t.Errorf("%q", answer)
		}
	}
}

func TestRulesDecideFromTheMomentThatThereAreSome(t *testing.T) {
	up := serveNames(t, good+". 60 IN A 203.0.113.1")
	judge := allowing(good)
	server := served(t, judge, up.nameservers)
	for _, network := range []string{"udp", "tcp"} {
		socket := asking(t, server, network)
		for unneeded, want := range map[bool]string{false: "198.18.0.1", true: "203.0.113.1"} {
			judge.mu.Lock()
			judge.unneeded = unneeded
			judge.mu.Unlock()
			reply := new(dns.Msg)
			must(t, reply.Unpack(exchanged(t, socket, packed(t, question(good+".", dns.TypeA)))))
			if got := reply.Answer[0].(*dns.A).A.String(); got != want {
				t.Errorf("%s, not %s", got, want)
			}
		}
	}
}

func TestWhatIsBeyondThePaceWaitsInTheKernelAndIsAnsweredInTheEnd(t *testing.T) {
	server := served(t, without(), nobody, func(s *Server) { s.pace = pace.New(20, 3, time.Now) })
	socket := asking(t, server, "udp")
	query := packed(t, question("example.org.", dns.TypeA))
	began := time.Now()
	for range 13 {
		socket.Conn.Write(query)
	}
	for range 13 {
		if _, err := socket.ReadMsgHeader(nil); err != nil {
			t.Fatal(err)
		}
	}
	if took := time.Since(began); took < 400*time.Millisecond {
		t.Errorf("13 questions took only %s", took)
	}
	stream := asking(t, server, "tcp")
	began = time.Now()
	for range 5 {
		exchanged(t, stream, query)
	}
	if took := time.Since(began); took < 150*time.Millisecond {
		t.Errorf("5 questions on a stream took only %s", took)
	}
}

func TestAFloodCostsBoundedGoroutinesAndIsToldSo(t *testing.T) {
	mute, err := net.ListenPacket("udp", "127.0.0.1:0") // a nameserver that never answers
	must(t, err)
	defer mute.Close()
	server := served(t, without(), func() []netip.AddrPort {
		return []netip.AddrPort{mute.LocalAddr().(*net.UDPAddr).AddrPort()}
	})
	before := runtime.NumGoroutine()
	socket, query := asking(t, server, "udp"), packed(t, question("example.org.", dns.TypeA))
	for i := range questionsMost {
		socket.Conn.Write(query)
		if i%32 == 31 { // the kernel's queue is not long
			until(t, "the questions", func() bool { return len(server.busy) > i })
		}
	}
	for range 50 {
		if answer := exchanged(t, socket, query); codeOf(answer) != dns.RcodeServerFailure {
			t.Fatalf("%q", answer)
		}
	}
	stream := asking(t, server, "tcp")
	if answer := exchanged(t, stream, query); codeOf(answer) != dns.RcodeServerFailure {
		t.Fatalf("%q", answer)
	}
	if grown := runtime.NumGoroutine() - before; grown > questionsMost+streamsMost {
		t.Errorf("there are %d more goroutines", grown)
	}
}

func TestOnlySoManyStreamsAreServed(t *testing.T) {
	server := served(t, without(), nobody)
	query := packed(t, question("example.org.", dns.TypeA))
	var streams []*dns.Conn
	for range streamsMost {
		stream := asking(t, server, "tcp")
		exchanged(t, stream, query)
		streams = append(streams, stream)
	}
	if _, err := asking(t, server, "tcp").ReadMsgHeader(nil); !errors.Is(err, io.EOF) {
		t.Errorf("one more is served: %v", err)
	}
	exchanged(t, streams[0], query)
	streams[1].Close()
	until(t, "the end of a stream", func() bool {
		server.mu.Lock()
		defer server.mu.Unlock()
		return len(server.streams) < streamsMost
	})
	exchanged(t, asking(t, server, "tcp"), query)
}

func TestAStreamThatIsIdleOrTooSlowIsClosed(t *testing.T) {
	server := served(t, without(), nobody, func(s *Server) { s.idle = 100 * time.Millisecond })
	idle, slow := asking(t, server, "tcp"), asking(t, server, "tcp")
	began := time.Now()
	ended := make(chan error)
	go func() {
		_, err := slow.ReadMsgHeader(nil)
		ended <- err
	}()
	for range 1000 { // a byte each time, and never the whole
		if _, err := slow.Conn.Write([]byte{1}); err != nil {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	if err := <-ended; err == nil {
		t.Error("a slow one has an answer")
	}
	if _, err := idle.ReadMsgHeader(nil); !errors.Is(err, io.EOF) {
		t.Error(err)
	}
	if took := time.Since(began); took > 5*time.Second {
		t.Errorf("it took %s", took)
	}
	until(t, "the end", func() bool { return !server.Asked() })
}

func TestAStreamWhoseGuestDoesNotReadIsClosed(t *testing.T) {
	server := served(t, without(), nobody, func(s *Server) {
		s.idle = 200 * time.Millisecond
		s.pace = pace.New(1e6, 1e6, time.Now)
	})
	stream := asking(t, server, "tcp")
	flood := bytes.Repeat(append([]byte{0, 14}, make([]byte, 14)...), 1<<12)
	for {
		if _, err := stream.Conn.Write(flood); err != nil {
			break
		}
	}
	until(t, "the end", func() bool { return !server.Asked() })
}

func TestItIsAskedWhileThereIsAStreamOrOneWaits(t *testing.T) {
	up := serveNames(t)
	server := prepared(partsOf(t, without(), up.nameservers))
	if server.Asked() {
		t.Error("it is asked before anybody connects")
	}
	stream := asking(t, server, "tcp")
	until(t, "a connection in the queue", server.Asked)
	server.start()
	t.Cleanup(server.Close)
	exchanged(t, stream, packed(t, question("example.org.", dns.TypeA)))
	if !server.Asked() {
		t.Error("it is not asked while a stream is open")
	}
	exchanged(t, asking(t, server, "udp"), packed(t, question("example.org.", dns.TypeA)))
	stream.Close()
	until(t, "the end of the stream", func() bool { return !server.Asked() })
}

func TestCloseEndsEverythingAndLeavesNoGoroutine(t *testing.T) {
	up := serveNames(t)
	resume := up.pause(t)
	before := runtime.NumGoroutine()
	for _, judge := range []*rules{without(), allowing(good)} {
		server := Serve(partsOf(t, judge, up.nameservers))
		query := packed(t, question(good+".", dns.TypeA))
		asked := up.times()
		datagrams, streams := asking(t, server, "udp"), []*dns.Conn{asking(t, server, "tcp"), asking(t, server, "tcp")}
		datagrams.Conn.Write(query)
		streams[0].Write(query)
		until(t, "both questions", func() bool { return len(server.busy) == 2 && up.times() > asked })
		began := time.Now()
		server.Close()
		server.Close()
		if took := time.Since(began); took > 2*time.Second {
			t.Errorf("it took %s", took)
		}
		for _, stream := range streams {
			if _, err := stream.ReadMsgHeader(nil); !errors.Is(err, io.EOF) && !isReset(err) {
				t.Errorf("a stream is open: %v", err)
			}
		}
		if _, err := net.Dial("tcp", server.parts.Listener.Addr().String()); err == nil {
			t.Error("it still listens")
		}
		if again, err := net.ListenPacket("udp", server.parts.Datagrams.LocalAddr().String()); err != nil {
			t.Errorf("its socket is open: %v", err)
		} else {
			again.Close()
		}
	}
	resume()
	until(t, "the end of all goroutines", func() bool { return runtime.NumGoroutine() <= before })
}

// short is a listener or a socket that fails at first, as when descriptors are short.
type shortListener struct {
	net.Listener
	left int
}

func (s *shortListener) Accept() (net.Conn, error) {
	if s.left--; s.left >= 0 {
		return nil, errors.New("too many open files")
	}
	return s.Listener.Accept()
}

type shortDatagrams struct {
	net.PacketConn
	left int
}

func (s *shortDatagrams) ReadFrom(into []byte) (int, net.Addr, error) {
	if s.left--; s.left >= 0 {
		return 0, nil, errors.New("no buffer space available")
	}
	return s.PacketConn.ReadFrom(into)
}

func TestAShortageOfDescriptorsPasses(t *testing.T) {
	server := served(t, without(), nobody, func(s *Server) {
		s.parts.Listener = &shortListener{s.parts.Listener, 2}
		s.parts.Datagrams = &shortDatagrams{s.parts.Datagrams, 2}
	})
	for _, network := range []string{"udp", "tcp"} {
		exchanged(t, asking(t, server, network), packed(t, question("example.org.", dns.TypeA)))
	}
	if server.Asked() != true {
		t.Error("it is not asked while a stream is open")
	}
}

func TestAGuestThatAsksForNothingCostsTwoGoroutines(t *testing.T) {
	before := runtime.NumGoroutine()
	for range 50 {
		served(t, without(), func() []netip.AddrPort { return nil })
	}
	if grown := runtime.NumGoroutine() - before; grown > 100 {
		t.Errorf("50 have %d goroutines", grown)
	}
}
