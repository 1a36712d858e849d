package serve

import (
	"bytes"
	"context"
	"crypto/ecdh"
	"crypto/rand"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"atoll/policy"
)

// recorder answers each request and remembers it in one line.
type recorder struct {
	mu   sync.Mutex
	seen []string
}

func (r *recorder) ServeHTTP(writer http.ResponseWriter, request *http.Request) {
	body, err := io.ReadAll(request.Body)
	r.mu.Lock()
	defer r.mu.Unlock()
	line := fmt.Sprintf("%s %s %s %q", request.Method, request.Host, request.RequestURI, body)
	if err != nil {
		line += " broken"
	}
	if request.Header.Get("X") != "" {
		line += " X=" + request.Header.Get("X")
	}
	r.seen = append(r.seen, line)
	writer.WriteHeader(200)
}

func (r *recorder) all() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return strings.Join(r.seen, "\n")
}

func TestRequestsThatCanBeReadInTwoWays(t *testing.T) {
	t.Parallel()
	const host = "Host: a.x\r\n"
	for name, c := range map[string]struct {
		sent string
		// What the server sees, and how the answer begins. Nothing else may arrive.
		arrives, answer string
	}{
		"length and chunks": {
			"POST /ok HTTP/1.1\r\n" + host + "Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nGET /no HTTP/1.1\r\n" + host + "\r\n",
			`POST a.x /ok ""`, "HTTP/1.1 200",
		},
		"two lengths":           {"POST /ok HTTP/1.1\r\n" + host + "Content-Length: 3\r\nContent-Length: 5\r\n\r\nabcde", "", "HTTP/1.1 400"},
		"a signed length":       {"POST /ok HTTP/1.1\r\n" + host + "Content-Length: +3\r\n\r\nabc", "", "HTTP/1.1 400"},
		"an unknown encoding":   {"POST /ok HTTP/1.1\r\n" + host + "Transfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n", "", "HTTP/1.1 501"},
		"an encoding with tab":  {"POST /ok HTTP/1.1\r\n" + host + "Transfer-Encoding:\x0bchunked\r\n\r\n0\r\n\r\n", "", "HTTP/1.1 400"},
		"a space in a name":     {"GET /ok HTTP/1.1\r\n" + host + "X : 1\r\n\r\n", "", "HTTP/1.1 400"},
		"a space before names":  {"GET /ok HTTP/1.1\r\n Host: b.x\r\n" + host + "\r\n", "", "HTTP/1.1 400"},
		"a folded header":       {"GET /ok HTTP/1.1\r\n" + host + "X: 1\r\n Host: b.x\r\n\r\n", `GET a.x /ok "" X=1 Host: b.x`, "HTTP/1.1 200"},
		"bare line feeds":       {"GET /ok HTTP/1.1\nHost: a.x\nX: 1\n\n", `GET a.x /ok "" X=1`, "HTTP/1.1 200"},
		"a bare return":         {"GET /ok HTTP/1.1\r\n" + host + "X: 1\rHost: b.x\r\n\r\n", "", "HTTP/1.1 400"},
		"a null":                {"GET /ok HTTP/1.1\r\n" + host + "X: \x00\r\n\r\n", "", "HTTP/1.1 400"},
		"two hosts":             {"GET /ok HTTP/1.1\r\n" + host + "Host: b.x\r\n\r\n", "", "HTTP/1.1 400"},
		"no host":               {"GET /ok HTTP/1.1\r\n\r\n", "", "HTTP/1.1 400"},
		"no host in 1.0":        {"GET /ok HTTP/1.0\r\n\r\n", `GET a.x /ok ""`, "HTTP/1.0 200"},
		"another host":          {"GET /ok HTTP/1.1\r\nHost: b.x\r\n\r\n", "", "HTTP/1.1 421"},
		"another port":          {"GET /ok HTTP/1.1\r\nHost: a.x:81\r\n\r\n", "", "HTTP/1.1 421"},
		"absolute":              {"GET http://a.x/ok HTTP/1.1\r\n" + host + "\r\n", `GET a.x /ok ""`, "HTTP/1.1 200"},
		"absolute wins":         {"GET http://b.x/ok HTTP/1.1\r\n" + host + "\r\n", "", "HTTP/1.1 421"},
		"absolute host is used": {"GET http://a.x/ok HTTP/1.1\r\nHost: b.x\r\n\r\n", `GET a.x /ok ""`, "HTTP/1.1 200"},
		"absolute with user":    {"GET http://b.x@a.x/ok HTTP/1.1\r\n" + host + "\r\n", "", "HTTP/1.1 4"},
		"absolute with scheme":  {"GET https://a.x/ok HTTP/1.1\r\n" + host + "\r\n", "", "HTTP/1.1 421"},
		"connect":               {"CONNECT a.x:80 HTTP/1.1\r\nHost: a.x:80\r\n\r\n", "", "HTTP/1.1 403"},
		"connect elsewhere":     {"CONNECT b.x:443 HTTP/1.1\r\nHost: b.x:443\r\n\r\n", "", "HTTP/1.1 403"},
		"trace":                 {"TRACE /ok HTTP/1.1\r\n" + host + "\r\n", "", "HTTP/1.1 403"},
		"all of the server":     {"OPTIONS * HTTP/1.1\r\n" + host + "\r\n", "", "HTTP/1.1 403"},
		"dots":                  {"GET /ok/../no HTTP/1.1\r\n" + host + "\r\n", "", "HTTP/1.1 403"},
		"encoded dots":          {"GET /ok/%2e%2E/no HTTP/1.1\r\n" + host + "\r\n", "", "HTTP/1.1 403"},
		"encoded slash":         {"GET /no%2f..%2fok HTTP/1.1\r\n" + host + "\r\n", "", "HTTP/1.1 403"},
		"backslash":             {"GET /ok\\..\\no HTTP/1.1\r\n" + host + "\r\n", "", "HTTP/1.1 4"},
		"dots that lead back":   {"GET /no/../ok HTTP/1.1\r\n" + host + "\r\n", `GET a.x /ok ""`, "HTTP/1.1 200"},
		"a blank line before":   {"\r\nGET /ok HTTP/1.1\r\nHost: b.x\r\n\r\n", "", "HTTP/1.1 400"},
		"a version in lower":    {"GET /ok http/1.1\r\nHost: b.x\r\n\r\n", "", "HTTP/1.1 400"},
		"a blank behind it":     {"GET /ok HTTP/1.1 \r\nHost: b.x\r\n\r\n", "", "HTTP/1.1 4"},
		"no version":            {"GET http://b.x/ok\r\n", "", "HTTP/1.1 400"},
		"decoded twice":         {"GET /ok/%252e%252e/no HTTP/1.1\r\n" + host + "\r\n", "", "HTTP/1.1 403"},
		"two slashes":           {"GET //ok HTTP/1.1\r\n" + host + "\r\n", "", "HTTP/1.1 403"},
		"a method in lower":     {"get /ok HTTP/1.1\r\n" + host + "\r\n", "", "HTTP/1.1 403"},
		"a second request":      {"GET /ok HTTP/1.1\r\n" + host + "\r\nGET /no HTTP/1.1\r\n" + host + "\r\n", `GET a.x /ok ""`, "HTTP/1.1 200"},
		"a second host":         {"GET /ok HTTP/1.1\r\n" + host + "\r\nGET /ok HTTP/1.1\r\nHost: b.x\r\n\r\n", `GET a.x /ok ""`, "HTTP/1.1 200"},
		"a long header":         {"GET /ok HTTP/1.1\r\n" + host + "X: " + strings.Repeat("a", 70<<10) + "\r\n\r\n", "", "HTTP/1.1 431"},
		"a chunk with bare LF":  {"POST /ok HTTP/1.1\r\n" + host + "Transfer-Encoding: chunked\r\n\r\n2\nab\r\n0\r\n\r\n", `POST a.x /ok "" broken`, "HTTP/1.1 "},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.policy(`{"action":"allow","paths":["/ok"]}`, `{"action":"allow","paths":["*"],"methods":["OPTIONS"]}`)
			arrived := &recorder{}
			w.server("a.x", arrived.ServeHTTP)
			answer := talk(t, w.take("a.x", 80), c.sent)
			got := arrived.all()
			if !strings.HasPrefix(answer, c.answer) || got != c.arrives && !(got == "" && strings.HasSuffix(c.arrives, "broken")) {
				t.Errorf("answer %.300q, arrived %q", answer, got)
			}
		})
	}
}

// frames makes what an HTTP/2 client sends.
func frame(kind, flags byte, stream uint32, payload []byte) []byte {
	head := []byte{
		byte(len(payload) >> 16), byte(len(payload) >> 8), byte(len(payload)), kind, flags,
		byte(stream >> 24), byte(stream >> 16), byte(stream >> 8), byte(stream),
	}
	return append(head, payload...)
}

// literal encodes fields without compression.
func literal(fields ...string) []byte {
	var out []byte
	for i := 0; i < len(fields); i += 2 {
		out = append(out, 0, byte(len(fields[i])))
		out = append(out, fields[i]...)
		out = append(out, byte(len(fields[i+1])))
		out = append(out, fields[i+1]...)
	}
	return out
}

func TestStreamsOfHTTP2AreJudgedOneByOne(t *testing.T) {
	t.Parallel()
	base := []string{":method", "GET", ":scheme", "http", ":path", "/ok"}
	with := func(more ...string) []byte { return literal(append(append([]string(nil), base...), more...)...) }
	for name, second := range map[string][]byte{
		"another authority":    with(":authority", "b.x"),
		"authority and host":   with(":authority", "b.x", "host", "a.x"),
		"a connection header":  with(":authority", "a.x", "connection", "x"),
		"an encoding header":   with(":authority", "a.x", "transfer-encoding", "chunked"),
		"an upgrade":           with(":authority", "a.x", "upgrade", "websocket"),
		"a name in upper case": with(":authority", "a.x", "X-A", "1"),
		"a line break":         with(":authority", "a.x", "x-a", "1\r\nhost: b.x"),
		"two paths":            with(":authority", "a.x", ":path", "/no"),
		"an absolute path":     literal(":method", "GET", ":scheme", "http", ":authority", "a.x", ":path", "http://b.x/ok"),
		"another path":         literal(":method", "GET", ":scheme", "http", ":authority", "a.x", ":path", "/no"),
		"connect":              literal(":method", "CONNECT", ":authority", "a.x:80"),
		"extended connect":     literal(":method", "CONNECT", ":protocol", "websocket", ":scheme", "http", ":path", "/ok", ":authority", "a.x"),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.policy(`{"action":"allow","paths":["/ok"]}`)
			arrived := &recorder{}
			w.server("a.x", arrived.ServeHTTP)
			conn := w.take("a.x", 80)
			var sent bytes.Buffer
			sent.WriteString("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
			sent.Write(frame(4, 0, 0, nil))
			sent.Write(frame(1, 5, 1, with(":authority", "a.x")))
			sent.Write(frame(1, 5, 3, second))
			talk(t, conn, sent.String())
			if got := arrived.all(); got != `GET a.x /ok ""` && got != "" {
				t.Errorf("arrived: %s", got)
			}
		})
	}
}

func TestTheNameInTLSAgreesWithTheDestination(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.policy(inspected)
	w.secure("a.x", true, func(http.ResponseWriter, *http.Request) {})
	ask := func(name, sni, host string) (int, error) {
		plain, _ := w.takeAs(name, "192.0.2.1", 443)
		w.named("192.0.2.1", w.addresses["a.x"])
		conn := tls.Client(plain, &tls.Config{RootCAs: w.trust, ServerName: sni, InsecureSkipVerify: sni == ""})
		if err := conn.Handshake(); err != nil {
			return 0, err
		}
		fmt.Fprintf(conn, "GET / HTTP/1.1\r\nHost: %s\r\nConnection: close\r\n\r\n", host)
		answer, err := io.ReadAll(conn)
		if len(answer) < 12 {
			return 0, fmt.Errorf("answer %q, %w", answer, err)
		}
		var status int
		_, err = fmt.Sscan(string(answer[9:12]), &status)
		return status, err
	}
	for _, c := range []struct {
		name, sni, host string
		want            int
	}{
		{"a.x", "a.x", "a.x", 200},
		{"A.X.", "a.x", "A.x.", 200},
		{"a.x", "a.x", "b.x", 421},
		{"a.x", "b.x", "a.x", 421},
		{"a.x", "b.x", "b.x", 421},
		{"a.x", "", "a.x", 200},
		{"a.x", "", "b.x", 421},
		{"", "a.x", "a.x", 200},
		{"", "a.x", "b.x", 421},
		{"", "192.0.2.1", "192.0.2.1", 200},
		{"", "192.0.2.1", "a.x", 421},
	} {
		got, err := ask(c.name, c.sni, c.host)
		if err != nil || got != c.want {
			t.Errorf("%+v: got %d, %v", c, got, err)
		}
	}
}

func TestCertificatesOfGuests(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.policy(inspected)
	w.secure("a.x", true, func(http.ResponseWriter, *http.Request) {})
	for _, version := range []uint16{tls.VersionTLS12, tls.VersionTLS13} {
		conn := tls.Client(w.take("a.x", 443), &tls.Config{RootCAs: w.trust, ServerName: "a.x", MaxVersion: version})
		must(t, conn.Handshake())
		leaf := conn.ConnectionState().PeerCertificates[0]
		expect(t, leaf.DNSNames, "[a.x]")
		if leaf.NotBefore.After(time.Now().Add(-6*24*time.Hour)) || leaf.NotAfter.Before(time.Now().Add(14*24*time.Hour)) {
			t.Errorf("it is valid from %v to %v", leaf.NotBefore, leaf.NotAfter)
		}
		expect(t, conn.ConnectionState().Version, version)
	}
}

// greeter speaks first and then echoes.
func greeter(w *world, name string, secured bool) {
	config := &tls.Config{
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return w.upstream.For(name, true, time.Now()) },
		NextProtos:     []string{"custom"},
	}
	w.raw(name, func(conn net.Conn) {
		if secured {
			conn = tls.Server(conn, config)
			defer conn.Close()
		}
		io.WriteString(conn, "220 hello\r\n")
		io.Copy(conn, conn)
	})
}

func TestWhatIsNotHTTPPassesOnlyWhereARuleAllowsIt(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	greeter(w, "a.x", false)
	w.policy(`{"action":"allow","methods":["GET"]}`, allow)
	hear(t, w.take("a.x", 25), "", "220 hello\r\n")
	hear(t, w.take("a.x", 25), "EHLO me\r\n", "220 hello\r\nEHLO me\r\n")
	hear(t, w.take("a.x", 25), "\x00\x00\x00\x08", "220 hello\r\n\x00\x00\x00\x08")
	for _, texts := range [][]string{
		{`{"action":"allow","methods":["GET"]}`}, {`{"action":"deny","methods":["POST"]}`, allow}, {},
	} {
		w.policy(texts...)
		conn := w.take("a.x", 25)
		expect(t, talk(t, conn, "EHLO me\r\n"), "")
		expect(t, w.wasReset(conn), true)
	}
	w.policy(allow)
	unknown := w.take("unknown.x", 25)
	expect(t, talk(t, unknown, "EHLO me\r\n"), "")
	expect(t, w.wasReset(unknown), true)
	before := w.dialled()
	w.policy(`{"action":"allow","methods":["GET"]}`)
	expect(t, talk(t, w.take("a.x", 25), ""), "")
	expect(t, w.dialled(), before)
}

func TestASlowClientOfHTTPIsStillJudged(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.policy(`{"action":"allow","methods":["GET"],"set_headers":{"x":"1"}}`, allow)
	arrived := &recorder{}
	w.server("a.x", arrived.ServeHTTP)
	conn := w.take("a.x", 80)
	time.Sleep(2 * silenceBeforeServer)
	contains(t, talk(t, conn, "GET / HTTP/1.1\r\nHost: a.x\r\n\r\n"), "200 OK")
	expect(t, arrived.all(), `GET a.x / "" X=1`)
}

func TestWhatIsInsideTLSAndNotHTTP(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	greeter(w, "a.x", true)
	config := &tls.Config{RootCAs: w.trust, ServerName: "a.x"}
	w.policy(`{"action":"allow","methods":["GET"]}`, allow)
	hear(t, tls.Client(w.take("a.x", 993), config), "", "220 hello\r\n")
	hear(t, tls.Client(w.take("a.x", 993), config), "EHLO me\r\n", "220 hello\r\nEHLO me\r\n")
	w.policy(`{"action":"allow","methods":["GET"]}`)
	refused := w.take("a.x", 993)
	expect(t, talk(t, tls.Client(refused, config), "EHLO me\r\n"), "")
	expect(t, w.wasReset(refused), true)
	// A protocol of its own is not opened: the client sees the server's certificate.
	own := &tls.Config{InsecureSkipVerify: true, ServerName: "a.x", NextProtos: []string{"custom"}}
	if err := tls.Client(w.take("a.x", 993), own).Handshake(); err == nil {
		t.Error("it passed")
	}
	w.policy(allow)
	conn := tls.Client(w.take("a.x", 993), own)
	must(t, conn.HandshakeContext(context.Background()))
	expect(t, conn.ConnectionState().NegotiatedProtocol, "custom")
	hear(t, conn, "x\n", "220 hello\r\nx\n")
}

// Another server with the name of another host may be at the same address.
func TestAPathWithTwoSlashesIsSentAsAPath(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.policy(inspected)
	arrived := &recorder{}
	w.server("a.x", arrived.ServeHTTP)
	talk(t, w.take("a.x", 80), "GET //b.x/no HTTP/1.1\r\nHost: a.x\r\n\r\n")
	expect(t, arrived.all(), `GET a.x //b.x/no ""`)
}

func TestABodyThatAServerMayNotExpectIsTheLastOfItsConnection(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.policy(inspected)
	w.server("a.x", func(writer http.ResponseWriter, request *http.Request) {
		fmt.Fprintf(writer, "%s closes: %v", request.Method, request.Close)
	})
	for _, method := range []string{"GET", "DELETE", "OPTIONS"} {
		expect(t, do(t, w.client(), method, "http://a.x/", "GET /no HTTP/1.1\r\n\r\n").text, method+" closes: true")
		expect(t, do(t, w.client(), method, "http://a.x/", "").text, method+" closes: false")
	}
	expect(t, do(t, w.client(), "POST", "http://a.x/", "x").text, "POST closes: false")
}

func TestAHandshakeThatIsNotOpenedNamesTheDestination(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	greeter(w, "a.x", true)
	w.policy(`{"action":"allow","methods":["GET"]}`, allow)
	shake := func(name string, hidden []byte) error {
		config := &tls.Config{
			InsecureSkipVerify: true, ServerName: name, NextProtos: []string{"custom"}, EncryptedClientHelloConfigList: hidden,
		}
		conn := w.take("a.x", 993)
		conn.SetDeadline(time.Now().Add(10 * time.Second))
		return tls.Client(conn, config).Handshake()
	}
	w.policy(allow)
	must(t, shake("a.x", nil))
	for _, name := range []string{"b.x", ""} {
		if shake(name, nil) == nil {
			t.Errorf("a handshake for %q passed", name)
		}
	}
	var rejected *tls.ECHRejectionError
	if err := shake("b.x", hiding(t, "a.x")); err == nil || errors.As(err, &rejected) {
		t.Errorf("the server has seen a hidden name: %v", err)
	}
}

// hiding is a list of keys for names that hide behind a public one.
func hiding(t *testing.T, public string) []byte {
	key, err := ecdh.X25519().GenerateKey(rand.Reader)
	must(t, err)
	config := append([]byte{7, 0, 0x20, 0, 32}, key.PublicKey().Bytes()...)
	config = append(config, 0, 4, 0, 1, 0, 1, 64, byte(len(public)))
	config = append(append(config, public...), 0, 0)
	config = append([]byte{0xfe, 0x0d, 0, byte(len(config))}, config...)
	return append([]byte{0, byte(len(config))}, config...)
}

func TestAClientThatBeginsHTTPAfterTheServerSpokeIsCut(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	greeter(w, "a.x", false)
	w.policy(`{"action":"allow","methods":["GET"]}`, allow)
	for _, late := range []string{"GET / HTTP/1.1\r\nHost: b.x\r\n\r\n", "PRI * HTTP/2.0\r\n\r\n", "\x16\x03\x01"} {
		conn := w.take("a.x", 25)
		hear(t, conn, "", "220 hello\r\n")
		expect(t, talk(t, conn, late), "")
	}
	conn := w.take("a.x", 25)
	hear(t, conn, "", "220 hello\r\n")
	hear(t, conn, "E", "E")
	hear(t, conn, "HLO\r\n", "HLO\r\n")
}

// The relay's tests read the same file.
func TestFirstLines(t *testing.T) {
	text, err := os.ReadFile("../../policy/testdata/first_lines.json")
	must(t, err)
	var lines [][2]string
	must(t, json.Unmarshal(text, &lines))
	kinds := map[string]Kind{"http": HTTP, "other": Other, "more": Unknown}
	for _, line := range lines {
		if got := Sniff([]byte(line[0])); got != kinds[line[1]] {
			t.Errorf("%q is %v, not %s", line[0], got, line[1])
		}
	}
}

func FuzzSniff(f *testing.F) {
	for _, text := range []string{
		"", "G", "GET / HTTP/1.1\r\n", "PRI * HTTP/2.0\r\n", "\x16\x03\x01", "\x16\x02", "SSH-2.0-x\r\n", "EHLO a\r\n", " ", "\r\nGET",
	} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		settled := Unknown
		for i := 0; i <= len(data); i++ {
			kind := Sniff(data[:i])
			if settled != Unknown && kind != settled && i <= policy.FirstLineMost {
				t.Fatalf("%q is %v and then %v", data[:i], settled, kind)
			}
			settled = kind
		}
	})
}

// A server of TLS skips a warning before the greeting. As another protocol, this would reach any name of the server.
func TestTLSInDisguisePassesNowhereAsAnotherProtocol(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	arrived := &recorder{}
	w.raw("a.x", func(conn net.Conn) {
		if count, _ := conn.Read(make([]byte, 1)); count > 0 {
			arrived.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("GET", "/", nil))
		}
	})
	w.policy(`{"action":"allow","methods":["GET"]}`, allow)
	for _, before := range []string{"\x15\x03\x01\x00\x02\x01\x5a", "\x80\x2e\x01\x03\x01\x00\x15\x00\x00\x00\x10"} {
		conn := w.take("a.x", 993)
		hear(t, conn, before, "")
		conn.SetDeadline(time.Now().Add(10 * time.Second))
		config := &tls.Config{InsecureSkipVerify: true, ServerName: "b.x", NextProtos: []string{"custom"}}
		if tls.Client(conn, config).Handshake() == nil {
			t.Errorf("a handshake for b.x passed behind %q", before)
		}
	}
	expect(t, arrived.all(), "")
}
