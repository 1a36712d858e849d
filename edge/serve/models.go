package serve

import (
	"context"
	"errors"
	"net/http"
	"os"

	"atoll/channel"
	"atoll/edge/control"
	"atoll/edge/models"
	"atoll/edge/traces"
	"atoll/policy"
)

var (
	errNoModels  = errors.New("the sandbox has no models any more")
	errOtherHost = errors.New("the request is for another host than " + policy.ModelsName)
	errManyCalls = errors.New("this sandbox has too many requests open")
)

// offerModels replaces the providers of models.
func (e *Edge) offerModels(file *os.File) error {
	var content control.Models
	if err := channel.Content(file, &content); err != nil {
		return err
	}
	return e.models.Offer(&content)
}

// isOfModels tells whether the connection leads to the gateway of models, and not to a server.
func (c *connection) isOfModels() bool { return c.to.Name == policy.ModelsName }

// serveModels has the gateway answer a request. No rule judges it: what it may do is part of the policy.
func (c *connection) serveModels(writer http.ResponseWriter, in *http.Request) {
	if !c.sandbox.canNote() {
		c.noteNothing("http", in.Method)
		unnoted.write(writer, in, c.host(), in.URL.Path)
		return
	}
	ctx, cancel := context.WithCancelCause(in.Context())
	defer cancel(nil)
	defer context.AfterFunc(c.ctx, func() { cancel(context.Cause(c.ctx)) })()
	in = in.WithContext(ctx)
	by, reply := &caller{connection: c, in: in, writer: writer, span: c.spanOf(in)}, &answer{ResponseWriter: writer}
	if by.span != nil {
		defer func() { c.sandbox.spans.End(tracedModel(by.span, reply)) }()
	}
	select {
	case c.sandbox.slots <- struct{}{}:
		defer func() { <-c.sandbox.slots }()
	default:
		by.refused = errManyCalls
	}
	if host := policy.PlainHost(hostOf(in.Host)); host != policy.ModelsName {
		by.refused = errOtherHost
	}
	c.sandbox.edge.models.Serve(reply, in, by)
}

// hostOf is a host without its port.
func hostOf(authority string) string {
	for i := len(authority) - 1; i >= 0; i-- {
		switch char := authority[i]; {
		case char == ':':
			return authority[:i]
		case char < '0' || char > '9':
			return authority
		}
	}
	return authority
}

// caller is the sandbox of one request to the gateway.
type caller struct {
	connection *connection
	in         *http.Request
	writer     http.ResponseWriter
	refused    error        // why it must not go on; nil: it may
	span       *traces.Span // nil: its owner exports none, or it belongs to no trace
}

// Sandbox is of gateway.Caller, as the others.
func (c *caller) Sandbox() string { return c.connection.sandbox.id }

// Span is what its owner hears of the request.
func (c *caller) Span() *traces.Span { return c.span }

// Access waits for the policy if it is being changed.
func (c *caller) Access(ctx context.Context) (*models.Access, error) {
	if c.refused != nil {
		return nil, c.refused
	}
	by, err := c.connection.current(ctx)
	if err != nil {
		return nil, err
	}
	return by.models, nil
}

// Reach is the way to a provider.
func (c *caller) Reach(provider *models.Provider) (http.RoundTripper, func()) {
	where := place{host: provider.Host, port: provider.Port, wire: plainHTTP1, provider: provider.Name}
	if provider.Secure {
		where.wire = inTLS
	}
	sandbox := c.connection.sandbox
	found := sandbox.pool.use(sandbox.edge, where)
	return found.transport, found.done
}

// Read reads the body into the room that the sandbox has for bodies.
func (c *caller) Read(ctx context.Context, most int64) ([]byte, func(), error) {
	ctx, cancel := context.WithTimeout(ctx, holdMost)
	defer cancel()
	output := http.NewResponseController(c.writer)
	stop := context.AfterFunc(ctx, func() { _ = output.SetReadDeadline(past) })
	defer stop()
	body := &guestBody{inner: c.in.Body, budget: c.connection.sandbox.bodies}
	first := int64(firstPiece)
	if c.in.ContentLength >= 0 {
		first = c.in.ContentLength + 1
	}
	for size := min(first, most); ; size = min(4*size, most) {
		if err := body.hold(ctx, size); err != nil {
			body.release()
			return nil, nil, err
		}
		if body.all || int64(len(body.held)) >= most {
			return body.held, body.release, nil
		}
	}
}

const firstPiece = 64 << 10

// Note counts a decision.
func (c *caller) Note(action, method, path, reason string) {
	verdict := policy.Verdict{Action: action, Reason: reason}
	c.connection.note(&verdict, "http", method, path)
}
