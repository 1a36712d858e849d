package serve

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"atoll/edge/control"
	"atoll/edge/gateway"
	"atoll/edge/leaf"
	"atoll/edge/seen"
)

const (
	headerMost   = 60 << 10 // net/http adds 4 KiB
	streamsMost  = 128
	silenceFirst = 60 * time.Second
	sweepEach    = 15 * time.Second
)

// Carrier has the other ends of connections. It connects and resets for those that it has handed over.
type Carrier interface {
	// Dial connects to where a connection leads; with a provider, to that provider of models.
	Dial(ctx context.Context, sandbox, connection, provider string) (net.Conn, error)
	Reset(sandbox, connection string) error
}

// Edge carries the connections of all sandboxes.
type Edge struct {
	authority *leaf.Authority
	roots     atomic.Pointer[x509.CertPool]
	opening   *tls.Config
	server    *http.Server
	queue     *queue
	news      chan struct{} // something was decided
	alarms    chan struct{} // a sandbox is to be unplugged
	asking    chan struct{} // an ask has begun or ended

	models  *gateway.Gateway
	telling sync.Mutex // held during a report of decisions, or of the counts of limits
	room    *seen.Room
	late    atomic.Bool // the owner cannot write what it takes, and nothing may be decided meanwhile

	mu        sync.Mutex
	sandboxes map[string]*sandbox
	lobby     lobby
	// Of sandboxes that are forgotten.
	last   []any
	ended  []control.AskEnd
	buried []*sandbox // whose decisions are not all told
}

// New makes an edge of its configuration.
func New(config control.Config) (*Edge, error) {
	authority, err := leaf.NewAuthority([]byte(config.Certificate), config.Key)
	clear(config.Key)
	if err != nil {
		return nil, err
	}
	edge := &Edge{
		authority: authority, queue: newQueue(), news: make(chan struct{}, 1),
		alarms: make(chan struct{}, 1), asking: make(chan struct{}, 1), sandboxes: map[string]*sandbox{},
		models: gateway.New(), room: seen.NewRoom(),
	}
	if err := edge.Trust(config.Roots); err != nil {
		return nil, err
	}
	edge.opening = &tls.Config{
		MinVersion:         tls.VersionTLS12,
		NextProtos:         []string{"h2", "http/1.1"},
		GetConfigForClient: edge.greet,
		GetCertificate:     edge.certificate,
	}
	edge.server = &http.Server{
		Handler:                      http.HandlerFunc(edge.serve),
		ReadHeaderTimeout:            silenceFirst,
		IdleTimeout:                  idleGuest,
		MaxHeaderBytes:               headerMost,
		HTTP2:                        &http.HTTP2Config{MaxConcurrentStreams: streamsMost},
		Protocols:                    &http.Protocols{},
		DisableGeneralOptionsHandler: true,
		ErrorLog:                     log.New(io.Discard, "", 0),
		ConnContext: func(ctx context.Context, conn net.Conn) context.Context {
			return context.WithValue(ctx, connectionKey{}, conn.(*socket).connection)
		},
	}
	edge.server.Protocols.SetHTTP1(true)
	edge.server.Protocols.SetUnencryptedHTTP2(true)
	return edge, nil
}

// Trust has servers verified by these certificates from now on.
func (e *Edge) Trust(roots string) error {
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM([]byte(roots)) && roots != "" {
		return errors.New("there is no certificate in roots")
	}
	e.roots.Store(pool)
	return nil
}

type connectionKey struct{}

// Run serves until the context ends.
func (e *Edge) Run(ctx context.Context) error {
	go e.sweep(ctx)
	stopped := context.AfterFunc(ctx, func() { e.server.Close() })
	defer stopped()
	return e.server.Serve(e.queue)
}

// sweep closes idle connections.
func (e *Edge) sweep(ctx context.Context) {
	due := time.NewTicker(sweepEach)
	defer due.Stop()
	for {
		select {
		case now := <-due.C:
			for _, each := range e.all() {
				each.pool.sweep(now)
			}
		case <-ctx.Done():
			return
		}
	}
}

func (e *Edge) all() []*sandbox {
	e.mu.Lock()
	defer e.mu.Unlock()
	all := make([]*sandbox, 0, len(e.sandboxes))
	for _, each := range e.sandboxes {
		all = append(all, each)
	}
	return all
}

// Handle handles a message of the supervisor. It owns the descriptor.
func (e *Edge) Handle(message *control.Message, file *os.File) error {
	switch message.Op {
	case "policy":
		return e.setPolicy(message, file)
	case "models":
		return e.offerModels(file)
	}
	if file != nil {
		file.Close()
	}
	switch message.Op {
	case "forget":
	case "late":
		e.late.Store(message.Late)
		return nil
	case "allot":
		e.models.Ledger.Allot(message.Allotment())
		return nil
	case "settled":
		e.models.Ledger.Settled(message.ID)
		return nil
	default:
		return errors.New("there is no message " + message.Op)
	}
	e.mu.Lock()
	found := e.sandboxes[message.Sandbox]
	delete(e.sandboxes, message.Sandbox)
	e.mu.Unlock()
	if found != nil {
		found.forget()
	}
	return nil
}

func (e *Edge) setPolicy(message *control.Message, file *os.File) error {
	e.mu.Lock()
	found := e.sandboxes[message.Sandbox]
	if found == nil {
		found = newSandbox(e, message.Sandbox)
		e.sandboxes[message.Sandbox] = found
	}
	e.mu.Unlock()
	next, err := readPolicy(message.Version, file)
	if err != nil {
		// What cannot be read allows nothing.
		next = nothingAllowed(message.Version)
	}
	err = errors.Join(err, found.setPolicy(next))
	// Under the lock, so that rules find a connection here or there.
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, each := range e.lobby.leave(message.Sandbox, next.version) {
		err = errors.Join(err, found.take(each))
	}
	return err
}

func (e *Edge) serve(writer http.ResponseWriter, request *http.Request) {
	connection := request.Context().Value(connectionKey{}).(*connection)
	if connection.isOfModels() {
		connection.serveModels(writer, request)
		return
	}
	connection.serve(writer, request)
}
