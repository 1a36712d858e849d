package serve

import (
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"strconv"
	"sync"
	"time"
)

const (
	idleUpstream     = 30 * time.Second
	idleGuest        = 30 * time.Second
	idleMost         = 32
	upstreamHeadMost = 256 << 10
	handshakeMost    = 15 * time.Second
	continueMost     = time.Second
)

// wire is how an upstream is spoken to.
type wire int

const (
	plainHTTP1 wire = iota
	plainHTTP2      // gRPC without TLS
	inTLS           // HTTP/1.1 or 2, as the server offers
	inTLS1          // HTTP/1.1 only, for upgrades
)

// place says which connections may carry a request: those to the same server, under the same name, of one sandbox.
type place struct {
	host    string
	address string
	port    int
	wire    wire
	// Of models, that the carrier leads to; empty: the place is where the guest's connection leads.
	provider string
}

// pool keeps the upstream connections of one sandbox.
type pool struct {
	mu        sync.Mutex
	upstreams map[place]*upstream
	retired   map[*upstream]struct{}
}

func newPool() *pool {
	return &pool{upstreams: map[place]*upstream{}, retired: map[*upstream]struct{}{}}
}

// upstream is one server.
type upstream struct {
	pool      *pool
	place     place
	transport *http.Transport

	// Guarded by the pool's mutex.
	active int
	last   time.Time
	conns  map[net.Conn]struct{}
	dead   bool
}

// use returns the upstream for a place, and counts the use until done is called.
func (p *pool) use(edge *Edge, where place) *upstream {
	p.mu.Lock()
	defer p.mu.Unlock()
	found, ok := p.upstreams[where]
	if !ok {
		found = newUpstream(edge, p, where)
		p.upstreams[where] = found
	}
	found.active++
	return found
}

func (u *upstream) done() {
	u.pool.mu.Lock()
	u.active--
	u.last = time.Now()
	_, retired := u.pool.retired[u]
	ended := retired && u.active == 0
	u.pool.mu.Unlock()
	if ended {
		u.transport.CloseIdleConnections()
	}
}

// rotate has later requests use new connections. An old connection ends with its last request.
func (p *pool) rotate() {
	p.mu.Lock()
	old := p.upstreams
	p.upstreams = map[place]*upstream{}
	for _, each := range old {
		p.retired[each] = struct{}{}
	}
	p.mu.Unlock()
	for _, each := range old {
		each.transport.CloseIdleConnections()
	}
}

// kill closes all connections at once, and each that is still being made.
func (p *pool) kill() {
	p.mu.Lock()
	var conns []net.Conn
	closing := func(each *upstream) {
		each.dead = true
		for conn := range each.conns {
			conns = append(conns, conn)
		}
	}
	for _, each := range p.upstreams {
		closing(each)
	}
	for each := range p.retired {
		closing(each)
	}
	p.mu.Unlock()
	for _, conn := range conns {
		conn.Close()
	}
}

// sweep forgets connections that were not used for a while.
func (p *pool) sweep(now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for where, each := range p.upstreams {
		if each.active == 0 && now.Sub(each.last) > idleUpstream && len(each.conns) == 0 {
			delete(p.upstreams, where)
		}
	}
	for each := range p.retired {
		if each.active == 0 && len(each.conns) == 0 {
			delete(p.retired, each)
		}
	}
}

func newUpstream(edge *Edge, owner *pool, where place) *upstream {
	made := &upstream{pool: owner, place: where, conns: map[net.Conn]struct{}{}}
	protocols := &http.Protocols{}
	protocols.SetHTTP1(where.wire != plainHTTP2)
	protocols.SetHTTP2(where.wire == inTLS)
	protocols.SetUnencryptedHTTP2(where.wire == plainHTTP2)
	offered := []string{"http/1.1"}
	if where.wire == inTLS {
		offered = []string{"h2", "http/1.1"}
	}
	sessions := tls.NewLRUClientSessionCache(8)
	made.transport = &http.Transport{
		Protocols:              protocols,
		DialContext:            func(ctx context.Context, _, _ string) (net.Conn, error) { return made.dial(ctx) },
		DisableCompression:     true,
		MaxIdleConns:           idleMost,
		MaxIdleConnsPerHost:    idleMost,
		MaxConnsPerHost:        exchangesMost,
		IdleConnTimeout:        idleUpstream,
		ExpectContinueTimeout:  continueMost,
		MaxResponseHeaderBytes: upstreamHeadMost,
		HTTP2:                  &http.HTTP2Config{SendPingTimeout: time.Minute, PingTimeout: 15 * time.Second},
		DialTLSContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			plain, err := made.dial(ctx)
			if err != nil {
				return nil, err
			}
			return edge.secure(ctx, plain, where.host, offered, sessions)
		},
	}
	return made
}

// dial asks for a connection, on behalf of the guest's connection that first needs it.
func (u *upstream) dial(ctx context.Context) (net.Conn, error) {
	conn, err := ctx.Value(connectionKey{}).(*connection).guest.dial(ctx, u.place.provider)
	if err != nil {
		return nil, err
	}
	tracked := &upstreamConn{Conn: conn, upstream: u}
	u.pool.mu.Lock()
	dead := u.dead
	if !dead {
		u.conns[tracked] = struct{}{}
	}
	u.pool.mu.Unlock()
	if dead {
		conn.Close()
		return nil, net.ErrClosed
	}
	return tracked, nil
}

// upstreamConn is known to its upstream while it is open.
type upstreamConn struct {
	net.Conn
	upstream *upstream
}

// Close ends the connection.
func (c *upstreamConn) Close() error {
	c.upstream.pool.mu.Lock()
	delete(c.upstream.conns, c)
	c.upstream.pool.mu.Unlock()
	return c.Conn.Close()
}

// secure makes a connection a TLS one to a server that proves to have that name.
func (e *Edge) secure(
	ctx context.Context, plain net.Conn, name string, offered []string, sessions tls.ClientSessionCache,
) (net.Conn, error) {
	secured := tls.Client(plain, &tls.Config{
		RootCAs: e.roots.Load(), ServerName: name, NextProtos: offered, MinVersion: tls.VersionTLS12, ClientSessionCache: sessions,
	})
	ctx, cancel := context.WithTimeout(ctx, handshakeMost)
	defer cancel()
	if err := secured.HandshakeContext(ctx); err != nil {
		plain.Close()
		return nil, err
	}
	return secured, nil
}

func (w wire) scheme() string {
	if w == plainHTTP1 || w == plainHTTP2 {
		return "http"
	}
	return "https"
}

func (p place) authority() string {
	return net.JoinHostPort(p.host, strconv.Itoa(p.port))
}
