package gateway

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"maps"
	"mime"
	"net/http"
	"time"

	"atoll/edge/models"
)

const (
	// A provider goes on for so many tokens of output in a second, as far as one knows.
	outputPerSecond = 100
	// By so much a stream is extended that has more output than was reserved.
	outputMore = 1 << 10
	pieceBytes = 32 << 10
)

// pass sends the request and passes the answer on. Whatever happens, the budgets have paid in the end.
func (c *call) pass() {
	ctx, cancel := context.WithCancel(c.in.Context())
	defer cancel()
	sent := c.send(ctx)
	defer sent.end()
	c.forget()
	if sent.err != nil {
		c.fail(ctx, sent)
		return
	}
	answer := c.newAnswer(sent)
	ending := models.Broken
	defer func() { c.settle(sent, answer, ending) }()
	c.tellHead(sent.response, answer.stream != nil)
	var err error
	if ending, err = c.copy(ctx, answer, sent.response.Body); err != nil && ending == models.Broken {
		panic(http.ErrAbortHandler) // the guest must not take it for a whole answer
	}
}

// fail answers when none of the models did.
func (c *call) fail(ctx context.Context, sent *attempt) {
	if sent.isSent.Load() { // it may have been served
		c.settle(sent, nil, models.Broken)
	}
	if ctx.Err() != nil {
		c.release()
		panic(http.ErrAbortHandler) // the guest is gone
	}
	text := sent.err.Error()
	var certificate *tls.CertificateVerificationError
	var unknown x509.UnknownAuthorityError
	if errors.As(sent.err, &certificate) || errors.As(sent.err, &unknown) {
		text = "its certificate cannot be trusted: " + text
	}
	if scrubber := c.offer.scrubbers[sent.candidate.Provider.Name]; scrubber != nil {
		text = string(scrubber.Bytes([]byte(text)))
	}
	c.refuse(&refusal{
		status: http.StatusBadGateway, code: "model_unreachable",
		message: "the provider " + sent.candidate.Provider.Name + " cannot be reached: " + text,
	})
}

// answer is what is read of a provider's answer on its way to the guest.
type answer struct {
	status int
	stream *models.Stream // nil: it is no stream
	whole  models.Tail
}

func (c *call) newAnswer(sent *attempt) *answer {
	made := &answer{status: sent.response.StatusCode}
	kind, _, err := mime.ParseMediaType(sent.response.Header.Get("Content-Type"))
	if err == nil && kind == "text/event-stream" {
		strips := c.ask != nil && c.ask.Adds && made.status == http.StatusOK
		made.stream = models.NewStream(c.target.Dialect, strips)
		if strips {
			sent.response.Header.Del("Content-Length")
		}
	}
	return made
}

// tellHead begins the answer, at once if it is a stream, of which nothing else may come for long.
func (c *call) tellHead(response *http.Response, isStream bool) {
	header := c.writer.Header()
	maps.Copy(header, headersBack(response.Header))
	left, limits := c.gateway.Ledger.LeftOf(c.access.Budgets)
	if c.hold != nil {
		left, limits = c.gateway.Ledger.Left(c.hold)
	}
	tellLeft(header, left, limits)
	c.writer.WriteHeader(response.StatusCode)
	if isStream {
		// Without it, the first piece brings the head along.
		_ = http.NewResponseController(c.writer).Flush()
	}
}

// headersBack are those of the provider that are passed on.
func headersBack(came http.Header) http.Header {
	out := came.Clone()
	for _, name := range []string{
		"Connection", "Keep-Alive", "Proxy-Authenticate", "Set-Cookie", "Te", "Trailer", "Transfer-Encoding", "Upgrade",
	} {
		out.Del(name)
	}
	return out
}

// copy passes the answer on, each piece at once.
func (c *call) copy(ctx context.Context, answer *answer, from io.Reader) (ending string, err error) {
	output, buffer := http.NewResponseController(c.writer), make([]byte, pieceBytes)
	for {
		count, err := from.Read(buffer)
		piece := answer.next(buffer[:count])
		if errors.Is(err, io.EOF) {
			piece = append(piece, answer.rest()...)
		}
		if len(piece) > 0 {
			if _, failed := c.writer.Write(piece); failed != nil {
				return models.Broken, failed
			}
			// Without it, only the write fails next time.
			_ = output.Flush()
		}
		switch {
		case errors.Is(err, io.EOF):
			return answer.ended(), nil
		case err != nil:
			return models.Broken, err
		case !c.mayGoOn(ctx, answer):
			c.cut(answer)
			return models.Cut, nil
		}
	}
}

func (a *answer) next(piece []byte) []byte {
	if a.stream == nil {
		a.whole.Next(piece)
		return piece
	}
	return a.stream.Next(piece)
}

func (a *answer) rest() []byte {
	if a.stream == nil {
		return nil
	}
	return a.stream.Rest()
}

func (a *answer) ended() string {
	if a.status >= http.StatusBadRequest {
		return models.Refused
	}
	return models.Whole
}

// mayGoOn tells whether what has come of a stream is reserved. It reserves more if there is more.
func (c *call) mayGoOn(ctx context.Context, answer *answer) bool {
	if answer.stream == nil || c.hold == nil || c.limits == (models.Limits{}) || answer.stream.OutputLeast() <= c.output {
		return true
	}
	ctx, cancel := context.WithTimeoutCause(ctx, allotMost, errSilentOwner)
	defer cancel()
	more := answer.stream.OutputLeast() - c.output + outputMore
	if c.gateway.Ledger.Extend(ctx, c.hold, c.worst(0, more)) != nil {
		return false
	}
	c.output += more
	return true
}

// cut says in the stream why it ends.
func (c *call) cut(answer *answer) {
	why := &refusal{
		status: http.StatusTooManyRequests, code: "model_budget_used",
		message: "the answer is cut: what was reserved for it is used up, and its budgets have no more",
	}
	text := "data: " + string(why.body(c.target.Dialect)) + "\n\n"
	if c.target.Dialect == models.Anthropic {
		text = "event: error\n" + text
	}
	// A guest that is gone does not read it.
	_, _ = c.writer.Write(append(answer.rest(), text...))
}

// settle has the budgets pay for what was used.
func (c *call) settle(sent *attempt, answer *answer, ending string) {
	if c.hold == nil || c.kind == models.Unknown {
		c.release()
		return
	}
	if ending == models.Broken && answer != nil && answer.stream != nil && answer.stream.IsDone() {
		ending = models.Whole // for the guest, which has left with all of it
	}
	used, estimated := c.used(answer, ending)
	cost := sent.candidate.Cost(used)
	bill := &models.Bill{
		Sandbox: c.caller.Sandbox(), Asked: c.ask.Model, Provider: sent.candidate.Provider.Name, Model: sent.candidate.Model,
		Usage: used, Nanos: cost.Nanos, Ending: ending, Estimated: estimated,
	}
	if answer != nil {
		bill.Status = answer.status
	}
	c.traceBill(bill, sent.candidate.Provider.Kind)
	c.gateway.Ledger.Settle(c.hold, cost, bill)
	c.hold = nil
}

// used is what the request has used: as the provider says, or at least an estimate if it has not said all.
func (c *call) used(answer *answer, ending string) (used models.Usage, estimated bool) {
	var told bool
	switch {
	case answer == nil:
	case answer.stream != nil:
		used, told = answer.stream.Usage()
	default:
		used, told = answer.whole.Usage(c.target.Dialect)
	}
	if ending == models.Refused || told && ending == models.Whole {
		return used, false
	}
	least := models.Usage{Output: c.output}
	if used.Input+used.CacheRead+used.CacheWrite == 0 {
		least.Input = c.ask.InputMost()
	}
	if c.ask.Stream && ending == models.Broken { // the provider may have gone on, unseen
		least.Output = min(int64(time.Since(c.began).Seconds()*outputPerSecond), c.output)
	}
	if answer != nil && answer.stream != nil {
		seen := answer.stream.Output()
		if ending != models.Broken {
			least.Output = seen
		}
		least.Output = max(least.Output, seen)
	}
	return used.AtLeast(least), true
}
