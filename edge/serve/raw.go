package serve

import (
	"context"
	"errors"
	"io"
	"net"

	"atoll/edge/forms"
	"atoll/policy"
)

// raw moves the bytes of a connection that is not HTTP, if the rules let it through.
func (c *connection) raw(guest *socket, server net.Conn, inTLS bool) {
	defer guest.Close()
	if !c.sandbox.canNote() {
		c.noteNothing("tcp", "")
		if server != nil {
			server.Close()
		}
		c.reset(unnoted)
		return
	}
	going := &exchange{connection: c, cancel: c.cut}
	var by *ruling
	var verdict policy.Verdict
	for begun := false; !begun; {
		var err error
		if by, err = c.current(c.ctx); err != nil {
			c.reset(err)
			return
		}
		if verdict = by.judgeRaw(); c.misdirected != "" {
			verdict = policy.Verdict{Action: policy.Deny, Reason: c.misdirected}
		}
		begun = c.begin(going, by)
	}
	defer c.finish(going)
	c.note(&verdict, "tcp", "", "")
	if !verdict.Passes() {
		if verdict.Action == policy.Unplug {
			c.sandbox.unplug(c, verdict.Rule, verdict.Why())
		}
		if server != nil {
			server.Close()
		}
		c.reset(denied(&verdict))
		return
	}
	if server == nil {
		var err error
		if server, err = c.dial(inTLS); err != nil {
			c.reset(err)
			return
		}
	}
	c.move(guest, server, by.canaries.Fresh())
}

// cut ends the connection because its rules do not allow it any more.
func (c *connection) cut(cause error) { c.reset(cause) }

// dial connects to the destination of this connection, with TLS inside if the guest's was opened.
func (c *connection) dial(inTLS bool) (net.Conn, error) {
	plain, err := c.guest.dial(c.ctx, "")
	if err != nil || !inTLS {
		return plain, err
	}
	return c.sandbox.edge.secure(c.ctx, plain, c.host(), nil, nil)
}

// move copies both ways until both sides have ended, or one has failed. Both are reset then.
func (c *connection) move(guest, server net.Conn, canaries *forms.Finder) {
	stop := context.AfterFunc(c.ctx, func() { server.Close() })
	defer stop()
	defer server.Close()
	var spoken io.Reader = guest
	if _, ok := server.(*greeted); ok {
		spoken = &watched{Reader: guest}
	}
	outgoing := &canaryReader{Reader: spoken, finder: canaries, left: canaryMost}
	done := make(chan error, 2)
	go func() { done <- carry(server, outgoing) }()
	go func() { done <- carry(guest, server) }()
	for range 2 {
		if err := <-done; err != nil {
			if errors.Is(err, errCanary) {
				c.sandbox.unplug(c, nil, "a canary appeared in a connection to "+c.host())
			}
			c.reset(err)
			server.Close()
		}
	}
	if c.ctx.Err() == nil {
		flushOnClose(server)
	}
}

// carry copies until the end, and then says to the other side that nothing more comes.
func carry(to net.Conn, from io.Reader) error {
	piece := make([]byte, 64<<10)
	for {
		count, err := from.Read(piece)
		if count > 0 {
			if _, err := to.Write(piece[:count]); err != nil {
				return err
			}
		}
		if errors.Is(err, io.EOF) {
			return closeWrite(to)
		}
		if err != nil {
			return err
		}
	}
}

var errLateHTTP = errors.New("the client began HTTP or TLS only after the server had spoken")

// watched is a guest whose server has spoken first. It fails at the piece that shows HTTP or TLS, so that this piece is not
// passed on: a connection that passed as another protocol is not judged by requests.
type watched struct {
	io.Reader
	begun   []byte
	settled bool
}

func (w *watched) Read(into []byte) (int, error) {
	count, err := w.Reader.Read(into)
	if !w.settled {
		w.begun = append(w.begun, into[:count]...)
		switch Sniff(w.begun) {
		case HTTP, TLS:
			return 0, errLateHTTP
		case Other:
			w.settled, w.begun = true, nil
		}
	}
	return count, err
}

var errCanary = errors.New("a canary appeared")

// The beginning of a body or of a raw connection in which canaries are looked for.
const canaryMost = 1 << 20

// canaryReader fails at the piece in which a canary ends, so that this piece is not passed on.
type canaryReader struct {
	io.Reader
	finder *forms.Finder
	left   int
}

func (r *canaryReader) Read(into []byte) (int, error) {
	count, err := r.Reader.Read(into)
	if r.left > 0 {
		if r.finder.Next(into[:count]) {
			return 0, errCanary
		}
		r.left -= count
	}
	return count, err
}
