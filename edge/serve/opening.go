package serve

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"os"
	"slices"
	"time"

	"atoll/policy"
)

// A guest that is silent this long may wait for the server to speak first.
const silenceBeforeServer = 300 * time.Millisecond

var errNotOpened = errors.New("the client speaks a protocol inside TLS that is not HTTP")

// run finds out the protocol of the connection and hands it on.
func (c *connection) run() {
	plain := &socket{Conn: c.guest, connection: c}
	if c.isOfModels() {
		c.sandbox.edge.queue.push(plain)
		return
	}
	switch kind, server := c.listen(plain, false); kind {
	case TLS:
		c.open(plain)
	case HTTP:
		c.sandbox.edge.queue.push(plain)
	case Other:
		c.raw(plain, server, false)
	default:
		plain.Close()
	}
}

// listen reads until the guest's protocol is clear. If the guest is silent, and may speak something else than HTTP, the
// server gets the chance to speak first; its connection is returned then.
func (c *connection) listen(guest *socket, inTLS bool) (Kind, net.Conn) {
	first := silenceFirst
	mayBeRaw := c.mayBeRaw()
	if mayBeRaw {
		first = silenceBeforeServer
	}
	end := time.Now().Add(silenceFirst)
	guest.SetReadDeadline(time.Now().Add(first))
	for {
		err := guest.fill()
		if errors.Is(err, os.ErrDeadlineExceeded) && mayBeRaw && len(guest.prefix) == 0 {
			server, kind := c.race(guest, inTLS)
			if kind != Unknown {
				return kind, server
			}
			err = nil
		}
		if err != nil {
			return Unknown, nil
		}
		kind := Sniff(guest.prefix)
		if inTLS && kind == TLS {
			kind = Other
		}
		if kind != Unknown {
			guest.SetReadDeadline(time.Time{})
			return kind, nil
		}
		guest.SetReadDeadline(end)
	}
}

// race connects to the server and waits for the side that speaks first. Unknown: the guest did, and its bytes may be HTTP
// or TLS. The server's connection is not used then, because the requests that follow are judged.
func (c *connection) race(guest *socket, inTLS bool) (net.Conn, Kind) {
	server, err := c.dial(inTLS)
	if err != nil {
		guest.SetReadDeadline(time.Time{})
		if guest.fill() != nil {
			guest.Close()
		}
		return nil, Unknown
	}
	upstream := &socket{Conn: server, connection: c}
	spoke := make(chan error, 1)
	go func() {
		err := upstream.fill()
		guest.SetReadDeadline(past) // before that is told: it is cleared then
		spoke <- err
	}()
	guest.SetReadDeadline(time.Time{})
	heard := guest.fill()
	if heard == nil && Sniff(guest.prefix) != Other {
		server.Close()
		<-spoke
		guest.SetReadDeadline(time.Time{})
		return nil, Unknown
	}
	server.SetReadDeadline(past)
	<-spoke
	server.SetReadDeadline(time.Time{})
	guest.SetReadDeadline(time.Time{})
	return &greeted{Conn: server, greeting: upstream.prefix}, Other
}

// greeted is a server's connection from which the greeting was read.
type greeted struct {
	net.Conn
	greeting []byte
}

func (g *greeted) Read(into []byte) (int, error) {
	if len(g.greeting) > 0 {
		count := copy(into, g.greeting)
		g.greeting = g.greeting[count:]
		return count, nil
	}
	return g.Conn.Read(into)
}

// CloseWrite says that nothing more comes.
func (g *greeted) CloseWrite() error { return closeWrite(g.Conn) }

func (c *connection) mayBeRaw() bool {
	ruling, err := c.current(c.ctx)
	if err != nil {
		return false
	}
	verdict := ruling.judgeRaw()
	return verdict.Passes() && c.misdirected == ""
}

// open does the TLS handshake with the guest, and looks at the protocol inside.
func (c *connection) open(plain *socket) {
	recorder := &handshaking{Conn: plain}
	inner := tls.Server(recorder, c.sandbox.edge.opening)
	ctx, cancel := context.WithTimeout(context.WithValue(c.ctx, connectionKey{}, c), silenceFirst)
	ctx = context.WithValue(ctx, handshakeKey{}, recorder)
	err := inner.HandshakeContext(ctx)
	cancel()
	recorder.done = true
	if errors.Is(err, errNotOpened) {
		plain.prefix = append(recorder.read, plain.prefix...)
		c.raw(plain, nil, false)
		return
	}
	recorder.read = nil
	if err != nil {
		plain.Close()
		return
	}
	c.scheme = "https"
	state := inner.ConnectionState()
	c.noteServerName(state.ServerName)
	opened := &socket{Conn: inner, connection: c}
	if state.NegotiatedProtocol == "h2" {
		c.sandbox.edge.queue.push(opened)
		return
	}
	switch kind, server := c.listen(opened, true); kind {
	case HTTP:
		c.sandbox.edge.queue.push(opened)
	case Other:
		c.raw(opened, server, true)
	default:
		opened.Close()
	}
}

type handshakeKey struct{}

func (c *connection) noteServerName(name string) {
	if name == "" {
		return
	}
	canonical, err := policy.CanonicalHost(name)
	if err != nil {
		c.misdirected = "the name in the TLS handshake is not a valid one"
		return
	}
	c.serverName = canonical
	if c.to.Name != "" && canonical != c.to.Name {
		c.misdirected = "the TLS handshake names " + canonical + ", but the connection is to " + c.to.Name
	}
}

const encryptedHello = 0xfe0d

// noteUnopened looks at a handshake that passes on unchanged, to a server that may have more names than this one.
func (c *connection) noteUnopened(hello *tls.ClientHelloInfo) {
	c.noteServerName(hello.ServerName)
	switch {
	case c.misdirected != "" || c.to.Name == "":
	case hello.ServerName == "":
		c.misdirected = "the TLS handshake names no server, and the connection is to " + c.to.Name
	case slices.Contains(hello.Extensions, encryptedHello):
		c.misdirected = "the TLS handshake may hide another name than " + c.to.Name
	}
}

// greet looks at the client's first message: a protocol that is not HTTP is not opened.
func (e *Edge) greet(hello *tls.ClientHelloInfo) (*tls.Config, error) {
	offered := hello.SupportedProtos
	if len(offered) > 0 && !slices.Contains(offered, "h2") && !slices.Contains(offered, "http/1.1") {
		hello.Context().Value(connectionKey{}).(*connection).noteUnopened(hello)
		hello.Context().Value(handshakeKey{}).(*handshaking).muted = true
		return nil, errNotOpened
	}
	return nil, nil
}

// certificate is made for the name that the client wants. A wrong name gets one too, so that the refusal can be read.
func (e *Edge) certificate(hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
	c := hello.Context().Value(connectionKey{}).(*connection)
	name, keep := c.to.Host(), true
	if hello.ServerName != "" {
		canonical, err := policy.CanonicalHost(hello.ServerName)
		if err != nil {
			return nil, err
		}
		keep = canonical == name
		name = canonical
	}
	return e.authority.For(name, keep, time.Now())
}
