package serve

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"atoll/channel"
	"atoll/edge/control"
	"atoll/edge/leaf"
	"atoll/edge/seen"
	"atoll/edge/traces"
)

// TestMain has more tests run at once than there are processors, as most of them wait.
func TestMain(m *testing.M) {
	flag.Parse()
	if err := flag.Set("test.parallel", "12"); err != nil {
		panic(err)
	}
	os.Exit(m.Run())
}

// world is an edge with a supervisor that dials to servers of the test.
type world struct {
	t         testing.TB
	edge      *Edge
	trust     *x509.CertPool // what a guest trusts
	upstream  *leaf.Authority
	mu        sync.Mutex
	addresses map[string]string // of names
	links     map[string]string // names of connections
	dials     int
	refused   string
	unplugs   []control.Unplug
	guests    map[string]net.Conn // the ends of connections that the relay keeps
	resets    map[string]bool
	entries   []seen.Entry
	spent     []control.Spent
	spans     []traces.Span
	asked     heard
	purse     purse
	count     int
	sandbox   string
	versions  map[string]int64
}

func newCA(t testing.TB) (certificate, key []byte) {
	t.Helper()
	signer, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test CA"}, IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Now().Add(-30 * 24 * time.Hour), NotAfter: time.Now().Add(3650 * 24 * time.Hour),
		KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &signer.PublicKey, signer)
	must(t, err)
	text, err := x509.MarshalPKCS8PrivateKey(signer)
	must(t, err)
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
		pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: text})
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func newWorld(t testing.TB) *world {
	t.Helper()
	return newWorldOf(t, func(w *world, ctx context.Context) { w.edge.Tell(ctx, w) })
}

// newWorldOf has an edge that tells somebody what it decides, and is prepared before it runs.
func newWorldOf(t testing.TB, tell func(*world, context.Context), prepare ...func(*Edge)) *world {
	t.Helper()
	certificate, key := newCA(t)
	roots, rootsKey := newCA(t)
	w := &world{
		t: t, trust: x509.NewCertPool(), addresses: map[string]string{}, links: map[string]string{},
		guests: map[string]net.Conn{}, resets: map[string]bool{}, sandbox: "s", versions: map[string]int64{},
	}
	w.trust.AppendCertsFromPEM(certificate)
	var err error
	w.upstream, err = leaf.NewAuthority(roots, rootsKey)
	must(t, err)
	w.edge, err = New(control.Config{Certificate: string(certificate), Key: key, Roots: string(roots)})
	must(t, err)
	for _, each := range prepare {
		each(w.edge)
	}
	ctx, stop := context.WithCancel(context.Background())
	var going sync.WaitGroup
	going.Go(func() { w.edge.Run(ctx) })
	going.Go(func() { tell(w, ctx) })
	t.Cleanup(func() { stop(); going.Wait() })
	return w
}

// Dial is the carrier's.
func (w *world) Dial(ctx context.Context, _, connection, provider string) (net.Conn, error) {
	w.mu.Lock()
	w.dials++
	address, ok := w.addresses[w.links[connection]]
	if provider != "" {
		address, ok = w.addresses["provider "+provider]
	}
	refused := w.refused
	w.mu.Unlock()
	if refused != "" {
		return nil, &control.RefusedError{Reason: refused}
	}
	if !ok {
		return nil, errors.New("the name does not exist")
	}
	var dialer net.Dialer
	conn, err := dialer.DialContext(ctx, "tcp", address)
	if err == nil {
		err = conn.(*net.TCPConn).SetLinger(0) // as the carrier's
	}
	return conn, err
}

// Send is the owner's.
func (w *world) Send(message any) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch told := message.(type) {
	case control.Unplug:
		w.unplugs = append(w.unplugs, told)
	case control.Seen:
		w.entries = append(w.entries, told.Entries...)
	case control.Spent:
		w.spent = append(w.spent, told)
	case control.Spans:
		w.spans = append(w.spans, told.Spans...)
	case control.Need, control.Billed, control.Returned:
		w.purse.hear(w.edge, told)
	default:
		w.asked.hear(told)
	}
	return nil
}

// Reset is the carrier's.
func (w *world) Reset(_, connection string) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.resets[connection] = true
	if guest, ok := w.guests[connection].(*net.UnixConn); ok {
		guest.CloseRead()
		guest.CloseWrite()
	}
	return nil
}

func (w *world) dialled() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.dials
}

// wasReset tells whether the edge had this connection reset.
func (w *world) wasReset(guest net.Conn) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	for id, each := range w.guests {
		if each == guest {
			return w.resets[id]
		}
	}
	return false
}

func (w *world) unplugged() []control.Unplug {
	w.mu.Lock()
	defer w.mu.Unlock()
	return append([]control.Unplug(nil), w.unplugs...)
}

// memfd is a sealed file in memory with JSON.
func memfd(t testing.TB, content any) *os.File {
	t.Helper()
	text, err := json.Marshal(content)
	must(t, err)
	fd, err := unix.MemfdCreate("content", unix.MFD_ALLOW_SEALING|unix.MFD_CLOEXEC)
	must(t, err)
	file := os.NewFile(uintptr(fd), "content")
	_, err = file.Write(text)
	must(t, err)
	_, err = unix.FcntlInt(file.Fd(), unix.F_ADD_SEALS,
		unix.F_SEAL_WRITE|unix.F_SEAL_SHRINK|unix.F_SEAL_GROW|unix.F_SEAL_SEAL)
	must(t, err)
	return file
}

type dict = map[string]any

// policy gives the sandbox rules, as JSON texts.
func (w *world) policy(rules ...string) { w.policyWith(dict{}, rules...) }

func (w *world) policyWith(more dict, rules ...string) {
	w.t.Helper()
	texts := make([]json.RawMessage, len(rules))
	for i, each := range rules {
		texts[i] = json.RawMessage(each)
	}
	more["rules"] = texts
	w.versions[w.sandbox]++
	message := control.Message{Op: "policy", Sandbox: w.sandbox, Version: w.versions[w.sandbox]}
	must(w.t, w.edge.Handle(&message, memfd(w.t, more)))
}

func sockets(t testing.TB) (net.Conn, *os.File) {
	t.Helper()
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	must(t, err)
	ours, err := channel.Stream(os.NewFile(uintptr(pair[0]), "guest"))
	must(t, err)
	return ours, os.NewFile(uintptr(pair[1]), "edge")
}

// take is a guest's new connection. All rules are kept if none are given.
func (w *world) take(name string, port int, rules ...int) net.Conn {
	w.t.Helper()
	conn, _ := w.takeAs(name, "192.0.2.1", port, rules...)
	return conn
}

func (w *world) takeAs(name, address string, port int, rules ...int) (net.Conn, string) {
	w.t.Helper()
	guest, theirs := sockets(w.t)
	w.mu.Lock()
	w.count++
	id := fmt.Sprintf("c%d", w.count)
	w.links[id], w.guests[id] = name, guest
	if name == "" {
		w.links[id] = address
	}
	w.mu.Unlock()
	if rules == nil {
		for i := range w.edge.sandboxes[w.sandbox].current().rules {
			rules = append(rules, i)
		}
	}
	err := w.edge.Carry(w, &control.Message{
		Op: "take", Sandbox: w.sandbox, Version: w.versions[w.sandbox], Connection: id, Name: name, Address: address, Port: port, Rules: rules,
		Ceiling: w.allOfCeiling(),
	}, theirs)
	if err != nil {
		w.t.Log("edge: ", err)
	}
	w.t.Cleanup(func() { guest.Close() })
	return guest, id
}

// allOfCeiling has the indices of all rules of the ceiling.
func (w *world) allOfCeiling() []int {
	var all []int
	for i := range w.edge.sandboxes[w.sandbox].current().ceiling {
		all = append(all, i)
	}
	return all
}

// server answers for a name without TLS.
func (w *world) server(name string, handler http.HandlerFunc) *httptest.Server {
	server := httptest.NewUnstartedServer(handler)
	server.Config.Protocols = &http.Protocols{}
	server.Config.Protocols.SetHTTP1(true)
	server.Config.Protocols.SetUnencryptedHTTP2(true)
	server.Start()
	w.t.Cleanup(server.Close)
	w.named(name, server.Listener.Addr().String())
	return server
}

// raw has a function serve each connection to a name.
func (w *world) raw(name string, serve func(net.Conn)) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	must(w.t, err)
	w.t.Cleanup(func() { listener.Close() })
	w.named(name, listener.Addr().String())
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				serve(conn)
			}()
		}
	}()
}

func (w *world) named(name, address string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.addresses[name] = address
}

// secure answers for a name by TLS, in HTTP/2 if asked.
func (w *world) secure(name string, h2 bool, handler http.HandlerFunc) *httptest.Server {
	server := httptest.NewUnstartedServer(handler)
	server.EnableHTTP2 = h2
	offered := []string{"http/1.1"}
	if h2 {
		offered = []string{"h2", "http/1.1"}
	}
	server.TLS = &tls.Config{GetConfigForClient: func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
		wanted := name
		if hello.ServerName == "" {
			wanted = "192.0.2.1"
		}
		certificate, err := w.upstream.For(wanted, true, time.Now())
		return &tls.Config{Certificates: []tls.Certificate{*certificate}, NextProtos: offered}, err
	}}
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	server.StartTLS()
	w.t.Cleanup(server.Close)
	w.named(name, server.Listener.Addr().String())
	return server
}

// client is a guest's, which reaches every name through the edge.
func (w *world) client(rules ...int) *http.Client {
	return w.clientOver(true, rules...)
}

func (w *world) clientOver(h2 bool, rules ...int) *http.Client {
	protocols := &http.Protocols{}
	protocols.SetHTTP1(true)
	protocols.SetHTTP2(h2)
	dial := func(_ context.Context, _, address string) (net.Conn, error) {
		host, port, err := net.SplitHostPort(address)
		if err != nil {
			return nil, err
		}
		var number int
		fmt.Sscan(port, &number)
		return w.take(host, number, rules...), nil
	}
	transport := &http.Transport{
		DialContext: dial, TLSClientConfig: &tls.Config{RootCAs: w.trust}, Protocols: protocols, DisableCompression: true,
	}
	w.t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{
		Transport:     transport,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// plainH2 is a client that speaks HTTP/2 without TLS.
func (w *world) plainH2() *http.Client {
	client := w.clientOver(true)
	protocols := &http.Protocols{}
	protocols.SetUnencryptedHTTP2(true)
	client.Transport.(*http.Transport).Protocols = protocols
	return client
}

type reply struct {
	*http.Response
	text string
}

func do(t testing.TB, client *http.Client, method, url, body string, headers ...string) reply {
	t.Helper()
	var reader io.Reader
	if body != "" {
		reader = strings.NewReader(body)
	}
	request, err := http.NewRequest(method, url, reader)
	must(t, err)
	for i := 0; i < len(headers); i += 2 {
		request.Header.Add(headers[i], headers[i+1])
	}
	response, err := client.Do(request)
	must(t, err)
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	must(t, err)
	return reply{response, string(text)}
}

// talk writes bytes and reads what comes until the end, or for a while.
func talk(t testing.TB, conn net.Conn, text string) string {
	t.Helper()
	if _, err := io.WriteString(conn, text); err != nil {
		t.Log("write:", err)
	}
	// A slow machine answers late, and what has begun goes on soon.
	conn.SetReadDeadline(time.Now().Add(5 * time.Second))
	first := make([]byte, 1)
	if count, _ := conn.Read(first); count == 0 {
		return ""
	}
	got := bytes.NewBuffer(first)
	conn.SetReadDeadline(time.Now().Add(700 * time.Millisecond))
	io.Copy(got, conn)
	return got.String()
}

// hear writes bytes and reads until a text comes.
func hear(t testing.TB, conn net.Conn, text, want string) {
	t.Helper()
	conn.SetDeadline(time.Now().Add(10 * time.Second))
	if _, err := io.WriteString(conn, text); err != nil {
		t.Fatal(err)
	}
	got := make([]byte, len(want))
	if count, err := io.ReadFull(conn, got); err != nil || string(got) != want {
		t.Fatalf("heard %q, %v, not %q", got[:count], err, want)
	}
}

// eventually waits for what another goroutine does.
func eventually(t testing.TB, what string, is func() bool) {
	t.Helper()
	for end := time.Now().Add(30 * time.Second); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		if is() {
			return
		}
	}
	t.Fatal("it never happens that ", what)
}

func expect(t testing.TB, got, want any) {
	t.Helper()
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Fatalf("got %v, want %v", got, want)
	}
}

func contains(t testing.TB, text, part string) {
	t.Helper()
	if !strings.Contains(text, part) {
		t.Fatalf("%q is not in %q", part, text)
	}
}

const allow = `{"action":"allow"}`
const inspected = `{"action":"allow","protocol":"http"}`
