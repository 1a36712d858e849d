package serve

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"time"

	"atoll/edge/forms"
	"atoll/edge/limit"
	"atoll/policy"
)

// A guest has this long to send a body that is held until it is judged, and to get room for it.
const holdMost = 10 * time.Minute

// guestBody is a request's body. Its beginning can be held to be judged, and is read again then.
type guestBody struct {
	inner    io.ReadCloser
	budget   *budget
	held     []byte
	all      bool // held is all of the body
	err      error
	giveBack []func()
}

// hold reads until this many bytes are held, or the body ends.
func (b *guestBody) hold(ctx context.Context, size int64) error {
	if b.all || int64(len(b.held)) >= size {
		return b.err
	}
	more := size - int64(len(b.held))
	giveBack, err := b.budget.take(ctx, more)
	if err != nil {
		return err
	}
	b.giveBack = append(b.giveBack, giveBack)
	buffer := bytes.NewBuffer(b.held)
	_, err = io.CopyN(buffer, b.inner, more)
	b.held = buffer.Bytes()
	if errors.Is(err, io.EOF) {
		b.all, err = true, nil
	}
	b.err = err
	return err
}

// judged is the body of a request with this header for conditions on its content.
func (b *guestBody) judged(ctx context.Context, header http.Header, length int64) policy.Body {
	if why := policy.BodyUnclear(header); why != "" {
		return policy.Body{Unclear: why}
	}
	size := int64(policy.DocumentMost + 1)
	if length > policy.DocumentMost {
		return policy.Body{Unclear: "the body is longer than 256 KiB"}
	}
	if length > 0 {
		size = length + 1
	}
	if err := b.hold(ctx, size); err != nil {
		return policy.Body{Unclear: "the body does not come: " + err.Error()}
	}
	return policy.Body{Bytes: b.held}
}

func (b *guestBody) release() {
	for _, each := range b.giveBack {
		each()
	}
	b.giveBack = nil
}

// whole is the body from its beginning: the held bytes, and then the rest.
func (b *guestBody) whole(rest io.Reader) io.Reader {
	if b.all {
		return bytes.NewReader(b.held)
	}
	if len(b.held) == 0 {
		return rest
	}
	return io.MultiReader(bytes.NewReader(b.held), rest)
}

// outgoing is the body on its way to the server. It stops before the end when it must not arrive.
type outgoing struct {
	io.Closer
	inner    io.Reader
	exchange *exchange
	meter    *limit.Meter
	most     *longest // nil: not bounded
	count    int64
	canaries *forms.Finder
	trailers func() bool
}

// Read passes on the next piece, or ends the exchange.
func (o *outgoing) Read(into []byte) (int, error) {
	count, err := o.inner.Read(into[:min(len(into), o.meter.Piece())])
	o.count += int64(count)
	if o.most != nil && o.count > o.most.bytes {
		return 0, o.exchange.fail(denied(&policy.Verdict{
			Rule: o.most.rule, Ceiling: o.most.isOfCeiling, Reason: "its body is too long",
			Remedy: "a shorter body, or a larger max_body_bytes in the rule",
		}))
	}
	if count > 0 && o.count-int64(count) < canaryMost && o.canaries.Next(into[:count]) ||
		errors.Is(err, io.EOF) && !o.trailers() {
		return 0, o.exchange.betray("the body of a request")
	}
	if fault := o.meter.Bytes(o.exchange.ctx, count); fault != nil {
		return 0, o.exchange.failBy(fault)
	}
	return count, err
}

// incoming is a response's body that is counted.
type incoming struct {
	io.ReadCloser
	exchange *exchange
	meter    *limit.Meter
}

// Read gets the next piece.
func (i *incoming) Read(into []byte) (int, error) {
	count, err := i.ReadCloser.Read(into[:min(len(into), i.meter.Piece())])
	if fault := i.meter.Bytes(i.exchange.ctx, count); fault != nil {
		return 0, i.exchange.failBy(fault)
	}
	return count, err
}

// incomingBoth is a connection after an upgrade.
type incomingBoth struct {
	incoming
	writer io.Writer
}

// Write sends the next piece.
func (i *incomingBoth) Write(from []byte) (int, error) {
	if fault := i.meter.Bytes(i.exchange.ctx, len(from)); fault != nil {
		return 0, i.exchange.failBy(fault)
	}
	return i.writer.Write(from)
}
