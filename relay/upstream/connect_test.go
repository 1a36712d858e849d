package upstream

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"atoll/policy"
	"atoll/relay/own"
)

const loopback = "127.0.0.1"

// names resolves what it has.
type names map[string][]string

func (n names) Addresses(ctx context.Context, name string) ([]netip.Addr, error) {
	if name == "slow.example" {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	var found []netip.Addr
	for _, each := range n[name] {
		found = append(found, netip.MustParseAddr(each))
	}
	if name == "broken.example" {
		return nil, errors.New("the nameserver at 10.0.0.2 says no")
	}
	return found, nil
}

func way(t *testing.T) Way {
	t.Helper()
	kernel, err := own.Open()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { kernel.Close() })
	return Way{
		Resolver: names{
			"proxy.example": {loopback}, "inside.example": {"10.11.12.13", "169.254.169.254"},
			"both.example": {"10.11.12.13", loopback},
		},
		Owns: kernel.Has,
	}
}

// serving has a function serve each connection at a port of the loopback interface. It tells of each when that has ended.
func serving(t *testing.T, serve func(net.Conn)) (port int, ended chan error) {
	t.Helper()
	listener, err := net.Listen("tcp", loopback+":0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close() })
	ended = make(chan error, 10)
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				serve(conn)
				conn.SetReadDeadline(time.Now().Add(10 * time.Second))
				_, err := io.Copy(io.Discard, conn)
				ended <- err
			}()
		}
	}()
	return listener.Addr().(*net.TCPAddr).Port, ended
}

// saying answers a proxy's client, piece by piece, and then echoes.
func saying(pause time.Duration, pieces ...string) func(net.Conn) {
	return func(conn net.Conn) {
		reader := bufio.NewReader(conn)
		if _, err := reader.Peek(1); err != nil {
			return
		}
		for _, piece := range pieces {
			io.WriteString(conn, piece)
			time.Sleep(pause)
		}
	}
}

func single(text string) []string { return strings.Split(text, "") }

func at(t *testing.T, scheme string, port int, addresses ...string) *Proxy {
	t.Helper()
	return proxy(t, fmt.Sprintf("%s://ann:s3cr3t@proxy.example:%d", scheme, port), addresses...)
}

func TestNotOneByteBehindTheAnswerIsTaken(t *testing.T) {
	const http200 = "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nX: \r\n y\r\n\r\n"
	long := "HTTP/1.1 200 OK\r\nX: " + strings.Repeat("x", 3*peekedBytes+2000)
	for _, each := range []struct {
		scheme string
		pieces []string
	}{
		{"http", []string{http200 + "220 ready"}},
		{"http", single(http200 + "220 ready")},
		{"http", []string{http200[:len(http200)-2], http200[len(http200)-2:] + "220 ready"}},
		{"http", []string{long + "\r", "\n\r", "\n220 ready"}},
		{"http", []string{long[:3*peekedBytes-3] + "\r\n\r\n220 ready"}},
		{"socks5", []string{loggedIn + connected + "220 ready"}},
		{"socks5", single(loggedIn + "\x05\x00\x00\x03\x03abc\x00\x00220 ready")},
	} {
		port, _ := serving(t, saying(2*time.Millisecond, each.pieces...))
		conn, err := Connect(context.Background(), at(t, each.scheme, port, loopback), "a.example", 443, way(t))
		if err != nil {
			t.Errorf("%s, %.60q: %v", each.scheme, each.pieces, err)
			continue
		}
		conn.SetReadDeadline(time.Now().Add(10 * time.Second))
		said := make([]byte, 9)
		if _, err := io.ReadFull(conn, said); err != nil || string(said) != "220 ready" {
			t.Errorf("%s, %.60q: %q, %v", each.scheme, each.pieces, said, err)
		}
		conn.Close()
	}
}

func TestAConnectionOutlivesTheTimeForTheHandshake(t *testing.T) {
	port, _ := serving(t, func(conn net.Conn) {
		saying(0, greeted, connected)(conn)
		time.Sleep(400 * time.Millisecond)
		io.WriteString(conn, "late")
	})
	by := way(t)
	by.Patience = 300 * time.Millisecond
	ctx, cancel := context.WithCancel(context.Background())
	conn, err := Connect(ctx, at(t, "socks5", port, loopback), "a.example", 443, by)
	cancel()
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	said := make([]byte, 4)
	if _, err := io.ReadFull(conn, said); err != nil || string(said) != "late" {
		t.Errorf("%q, %v", said, err)
	}
}

func TestAProxyThatFailsIsClosedAndToldAsThat(t *testing.T) {
	flood := func(conn net.Conn) {
		conn.SetWriteDeadline(time.Now().Add(5 * time.Second))
		for {
			if _, err := io.WriteString(conn, "HTTP/1.1 200 OK\r\n"+strings.Repeat("x: y", 1024)); err != nil {
				return
			}
		}
	}
	trickle := func(conn net.Conn) {
		for range 40 {
			if _, err := io.WriteString(conn, "\x05"); err != nil {
				return
			}
			time.Sleep(25 * time.Millisecond)
		}
	}
	const late = "it gives no answer within 0.5 s"
	for _, each := range []struct {
		scheme string
		serve  func(net.Conn)
		want   string
	}{
		{"http", saying(0, "HTTP/1.1 403 no\r\n\r\n"), "it answers 403"},
		{"http", saying(0, "\x05\x07HTTP/3 banana\r\n\r\n"), "it does not answer as a proxy of HTTP does"},
		{"http", flood, "its answer is too long"},
		{"http", func(conn net.Conn) { conn.Close() }, "it ends the connection"},
		{"http", func(conn net.Conn) { saying(0, "HTTP/1.1 200 OK\r\n")(conn); conn.Close() }, "it ends the connection"},
		{"http", func(net.Conn) {}, late},
		{"http", saying(25*time.Millisecond, single(strings.Repeat("HTTP/1.1 100\r\n\r\n", 3))...), late},
		{"socks5", saying(0, greeted+"\x05\x02\x00\x01"), "its rules do not allow it"},
		{"socks5", saying(0, "\x05\x07HTTP/3 banana\r\n\r\n"), "it chooses a login that was not offered"},
		{"socks5", flood, "it does not answer as a proxy of SOCKS5 does"},
		{"socks5", func(conn net.Conn) { conn.Close() }, "it ends the connection"},
		{"socks5", func(net.Conn) {}, late},
		{"socks5", func(conn net.Conn) { saying(0, greeted+"\x05\x00\x00\x03\xff")(conn); trickle(conn) }, late},
	} {
		port, ended := serving(t, each.serve)
		by := way(t)
		by.Patience = 500 * time.Millisecond
		if each.want != late {
			by.Patience = 0
		}
		begun := time.Now()
		_, err := Connect(context.Background(), at(t, each.scheme, port, loopback), "a.example", 443, by)
		var refused *ProxyError
		if !errors.As(err, &refused) || refused.Reason != each.want {
			t.Errorf("%s: %v, not %q", each.scheme, err, each.want)
		}
		if took := time.Since(begun); each.want == late && took > 5*time.Second {
			t.Errorf("%s: it took %v", each.scheme, took)
		}
		select {
		case <-ended:
		case <-time.After(10 * time.Second):
			t.Errorf("%s: the connection stays open after %q", each.scheme, each.want)
		}
	}
}

func TestAProxyIsOnlyWhereItMayBe(t *testing.T) {
	port, _ := serving(t, saying(0, greeted, connected))
	const shut = ", and its `addresses` do not open it"
	for _, each := range []struct {
		host      string
		addresses []string
		want      string
	}{
		{loopback, nil, "it is at 127.0.0.1, which is this host" + shut},
		{loopback, []string{"0.0.0.0/0", "127.0.0.0/8"}, "it is at 127.0.0.1, which is this host" + shut},
		{"[::ffff:127.0.0.1]", []string{"0.0.0.0/0", "::/0"}, "it is at 127.0.0.1, which is this host" + shut},
		{"0.0.0.0", []string{"0.0.0.0/0"}, "it is at 0.0.0.0, which is this host" + shut},
		{"127.8.8.8", []string{"127.0.0.0/8", loopback}, "it is at 127.8.8.8, which is this host" + shut},
		{"10.11.12.13", nil, "it is at 10.11.12.13, which is private" + shut},
		{"[fd00::1]", []string{"10.0.0.0/8"}, "it is at fd00::1, which is private and metadata" + shut},
		{"proxy.example", nil, "it is at an address that is this host" + shut},
		{"inside.example", nil, "it is at an address that is private" + shut},
		{"unknown.example", nil, "its name cannot be resolved"},
		{"broken.example", nil, "its name cannot be resolved"},
		{loopback, []string{loopback}, ""},
		{loopback, []string{"10.0.0.0/8", loopback + "/32"}, ""},
		{"[::ffff:127.0.0.1]", []string{loopback}, ""},
		{"proxy.example", []string{loopback}, ""},
		// The first address that is open is taken.
		{"both.example", []string{loopback}, ""},
	} {
		found := proxy(t, fmt.Sprintf("socks5://%s:%d", each.host, port), each.addresses...)
		conn, err := Connect(context.Background(), found, "a.example", 443, way(t))
		if conn != nil {
			conn.Close()
		}
		var refused *ProxyError
		if each.want == "" && err != nil || each.want != "" && (!errors.As(err, &refused) || refused.Reason != each.want) {
			t.Errorf("%s: %v, not %q", each.host, err, each.want)
		}
	}
	public := way(t)
	public.Owns = func(address netip.Addr) (bool, error) { return address == netip.MustParseAddr("8.8.8.8"), nil }
	for _, host := range []string{"8.8.8.8", "[64:ff9b::808:808]"} {
		_, err := Connect(context.Background(), proxy(t, "http://"+host+":1", "8.8.8.0/24"), "a.example", 443, public)
		if err == nil || !strings.Contains(err.Error(), "which is this host") {
			t.Errorf("%s: %v", host, err)
		}
	}
}

func TestAHostThatDoesNotKnowItsAddressesConnectsNowhere(t *testing.T) {
	port, _ := serving(t, saying(0, greeted, connected))
	by := way(t)
	broken := errors.New("the kernel gives no answer")
	by.Owns = func(netip.Addr) (bool, error) { return false, broken }
	_, err := Connect(context.Background(), at(t, "socks5", port, loopback), "a.example", 443, by)
	var refused *ProxyError
	if err == nil || errors.As(err, &refused) || !strings.Contains(err.Error(), broken.Error()) {
		t.Errorf("it fails with %v", err)
	}
}

func TestAProxyThatIsDownOrSealedIsToldAsThat(t *testing.T) {
	listener, err := net.Listen("tcp", loopback+":0")
	if err != nil {
		t.Fatal(err)
	}
	down := listener.Addr().(*net.TCPAddr).Port
	listener.Close()
	for _, each := range []struct {
		proxy *Proxy
		want  string
	}{
		{at(t, "http", down, loopback), "it cannot be reached: Connection refused"},
		{
			proxy(t, "http://ann:atoll-sealed.AAAA@127.0.0.1:1", loopback),
			"its password cannot be opened: set the policy again, with the password",
		},
	} {
		_, err := Connect(context.Background(), each.proxy, "a.example", 443, way(t))
		var refused *ProxyError
		if !errors.As(err, &refused) || refused.Reason != each.want {
			t.Errorf("%v, not %q", err, each.want)
		}
	}
}

func ceiling(t *testing.T, texts ...string) *policy.Gatekeeper {
	t.Helper()
	raw := make([]json.RawMessage, len(texts))
	for i, text := range texts {
		raw[i] = json.RawMessage(text)
	}
	rules, err := policy.ParseRules(raw)
	if err != nil {
		t.Fatal(err)
	}
	return policy.NewGatekeeper(policy.Terms{Rules: rules})
}

func TestACeilingMustLetTheProxyBeReached(t *testing.T) {
	port, _ := serving(t, saying(0, greeted, connected))
	var asked atomic.Int32
	by := way(t)
	by.Resolver = counted{by.Resolver, &asked}
	by.Owns = func(netip.Addr) (bool, error) { return false, nil }
	const refusal = "the team's ceiling does not let it be used: "
	rule := func(text string) string { return fmt.Sprintf(`{"action":"allow",%s}`, text) }
	named, plain := at(t, "socks5", port, loopback), proxy(t, fmt.Sprintf("socks5://10.0.0.1:%d", port), "10.0.0.1")
	for _, each := range []struct {
		proxy *Proxy
		rules []string
		want  string
	}{
		{named, []string{rule(`"hosts":["a.example"]`)}, refusal + "no rule allows proxy.example"},
		{named, []string{rule(`"hosts":["proxy.example"],"ports":[1]`)},
			refusal + "proxy.example leads to an address that is loopback"},
		{plain, []string{rule(`"addresses":["10.0.0.1"],"ports":[1]`)}, refusal + "10.0.0.1 is private"},
		{plain, []string{rule(`"addresses":["10.0.0.1"],"methods":["GET"],"ports":["1-65535"]`)},
			refusal + "it looks into requests, which a proxy hides"},
	} {
		before := asked.Load()
		by.Ceiling = ceiling(t, each.rules...)
		_, err := Connect(context.Background(), each.proxy, "a.example", 443, by)
		if err == nil || err.Error() != each.want {
			t.Errorf("%v, not %q", err, each.want)
		}
		if strings.HasSuffix(each.want, "no rule allows proxy.example") && asked.Load() != before {
			t.Error("a name is resolved that may not be known")
		}
	}
	// A ceiling has no rule that opens the loopback interface, so one that passes is tried where nothing answers.
	by.Ceiling = ceiling(t, rule(`"addresses":["10.0.0.0/8"]`))
	by.Patience = 200 * time.Millisecond
	_, err := Connect(context.Background(), plain, "a.example", 443, by)
	if err == nil || strings.Contains(err.Error(), "ceiling") {
		t.Errorf("a proxy that the ceiling allows fails with %v", err)
	}
}

type counted struct {
	Resolver
	count *atomic.Int32
}

func (c counted) Addresses(ctx context.Context, name string) ([]netip.Addr, error) {
	c.count.Add(1)
	return c.Resolver.Addresses(ctx, name)
}

func TestAWaitForAProxyEndsWithItsContext(t *testing.T) {
	silent, ended := serving(t, func(net.Conn) {})
	why := errors.New("the policy forbids it")
	for _, found := range []*Proxy{at(t, "http", silent, loopback), proxy(t, "http://slow.example:1")} {
		ctx, cancel := context.WithCancelCause(context.Background())
		time.AfterFunc(50*time.Millisecond, func() { cancel(why) })
		if _, err := Connect(ctx, found, "a.example", 443, way(t)); !errors.Is(err, why) {
			t.Errorf("it fails with %v", err)
		}
	}
	select {
	case <-ended:
	case <-time.After(10 * time.Second):
		t.Error("the connection stays open")
	}
	by := way(t)
	by.Patience = 50 * time.Millisecond
	_, err := Connect(context.Background(), proxy(t, "http://slow.example:1"), "a.example", 443, by)
	if err == nil || err.Error() != "it gives no answer within 0.05 s" {
		t.Errorf("a slow nameserver is told as %v", err)
	}
}

func TestWhatIsNoDestinationIsToldToNoProxy(t *testing.T) {
	for _, each := range []struct {
		host string
		port int
	}{
		{"", 443}, {"a.example\r\nX: y", 443}, {"A.example", 443}, {"a.example.", 443}, {"1.2.3", 443}, {"fe80::1%eth0", 443},
		{strings.Repeat("a.", 130), 443}, {"a.example", 0}, {"a.example", 65536},
	} {
		_, err := Connect(context.Background(), proxy(t, plainHTTP), each.host, each.port, Way{})
		var refused *ProxyError
		if err == nil || errors.As(err, &refused) {
			t.Errorf("%q, port %d: %v", each.host, each.port, err)
		}
	}
}
