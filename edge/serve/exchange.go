package serve

import (
	"context"
	"errors"
	"io"
	"net/http"
	"sync"
	"time"

	"atoll/edge/change"
	"atoll/edge/limit"
	"atoll/policy"
)

func now() time.Time { return time.Now() }

// exchange is one request and its response, or a connection that is not HTTP.
type exchange struct {
	connection *connection
	in         *http.Request
	answer     *answer
	input      *input
	body       *guestBody
	ctx        context.Context
	cancel     context.CancelCauseFunc

	ruling   *ruling
	request  *policy.Request // nil: not HTTP
	sent     *policy.Request // what of it is sent; nil: the rule changes it, and no ceiling has judged that
	verdict  policy.Verdict
	above    *policy.Rule // the ceiling's that lets it pass
	meter    *limit.Meter
	target   *change.Target
	echoes   []change.Echo
	upstream *upstream
	isDuplex bool // the response may begin before the request has ended

	// Of a request that a rule asks about.
	came     http.Header // its headers as they came; nil: no rule asks here
	waits    *waiter     // nil: it waits for no answer
	approved approval

	mu      sync.Mutex
	again   chan struct{} // has it judged again while it is held; nil: it is not
	refusal *refusal
	isCut   bool // the rest of the request's body is not read
	isOver  bool

	code    string // of the refusal that was the answer
	isWhole bool   // the handler has not panicked
}

type exchangeKey struct{}

// serve handles one request.
func (c *connection) serve(writer http.ResponseWriter, in *http.Request) {
	x := &exchange{connection: c, answer: &answer{ResponseWriter: writer}}
	if span := c.spanOf(in); span != nil {
		defer func() { c.sandbox.spans.End(x.traced(span)) }()
	}
	select {
	case c.sandbox.slots <- struct{}{}:
		defer func() { <-c.sandbox.slots }()
	default:
		x.in, x.ctx = in, in.Context()
		x.refuse(&refusal{
			status: http.StatusServiceUnavailable, code: "too_many_requests", retry: time.Second,
			message: "this sandbox has too many requests open", remedy: "wait until some have ended",
		})
		return
	}
	ctx, cancel := context.WithCancelCause(context.WithValue(in.Context(), exchangeKey{}, x))
	defer cancel(nil)
	stop := context.AfterFunc(c.ctx, func() { cancel(context.Cause(c.ctx)) })
	defer stop()
	x.ctx, x.cancel, x.in = ctx, cancel, in.WithContext(ctx)
	context.AfterFunc(ctx, x.stopReading)
	defer x.over(true)
	x.answer.last = x.isLast
	x.input = inputOf(in)
	x.in.Body = x.input
	x.body = &guestBody{inner: x.input, budget: c.sandbox.bodies}
	defer x.body.release()
	defer c.finish(x)
	x.run()
	x.isWhole = true
	if x.over(false) && in.ProtoMajor == 1 && x.answer.begun && !x.answer.isLast {
		// The connection ends, after the answer has reached the guest.
		_ = http.NewResponseController(x.answer).Flush()
		panic(http.ErrAbortHandler)
	}
}

// stopReading has a request that is cut not wait for the rest of the guest's body.
func (x *exchange) stopReading() {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.cut()
}

func (x *exchange) cut() {
	if !x.isOver && !x.isCut {
		x.isCut = true
		x.readNoMore()
	}
}

func (x *exchange) readNoMore() {
	_ = http.NewResponseController(x.answer.ResponseWriter).SetReadDeadline(past)
}

// over says that the handler returns, by a panic or not: its arguments are no longer usable. It returns whether
// the request was cut.
func (x *exchange) over(panics bool) bool {
	x.mu.Lock()
	if panics || x.ctx.Err() != nil {
		x.cut()
	}
	isFirst, isCut := !x.isOver, x.isCut
	x.isOver = true
	x.mu.Unlock()
	if isFirst && (x.answer.isLast || x.isLast()) {
		// The server would wait for who still reads, and then for the rest of the body, without an end.
		x.readNoMore()
		x.input.leave()
		x.connection.lingers.Store(true)
	}
	return isCut
}

// isLast says whether the connection of HTTP/1 must end with this response, because the server would take the unread rest
// of the request for the next one, or because the request was cut: its context and the connection's have ended.
func (x *exchange) isLast() bool {
	if x.in.ProtoMajor != 1 {
		return false
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.isCut || x.isDuplex && !x.input.ended.Load()
}

func (x *exchange) run() {
	if !x.connection.sandbox.canNote() {
		x.connection.noteNothing(x.connection.scheme, x.in.Method)
		x.refuse(unnoted)
		return
	}
	if fault := x.settle(); fault != nil {
		x.refuse(fault)
		return
	}
	if !x.verdict.Passes() {
		if x.verdict.Action == policy.Unplug {
			x.connection.sandbox.unplug(x.connection, x.verdict.Rule, x.verdict.Why())
			x.connection.end(errUnplugged)
		}
		x.refuse(denied(&x.verdict))
		return
	}
	if fault := x.prepare(); fault != nil {
		x.refuse(fault)
		return
	}
	x.pass()
}

// decide has the request judged. When the rules change meanwhile, it is judged again by the new ones.
func (x *exchange) decide() *refusal {
	for {
		by, err := x.connection.current(x.ctx)
		if err != nil {
			return x.hard(&policy.Fault{Status: http.StatusForbidden, Reason: err.Error()})
		}
		x.ruling = by
		if x.connection.misdirected != "" {
			return x.hard(&policy.Fault{Status: http.StatusMisdirectedRequest, Reason: x.connection.misdirected})
		}
		if by.asks && x.came == nil {
			x.came = x.in.Header.Clone()
		}
		x.request, err = policy.NewRequest(x.parts(), x.connection.to, by.judges()...)
		var fault *policy.Fault
		if errors.As(err, &fault) {
			return x.hard(fault)
		}
		if x.hasCanary() {
			return x.betray("a request").(*refusal)
		}
		x.verdict = policy.Judge(by.kept, x.request, by.observe)
		if x.verdict.Asks() {
			x.approve(&x.verdict)
		}
		why := x.plan()
		x.request.Seal()
		asks := x.verdict.Asks()
		x.setAgain(asks)
		if x.connection.begin(x, by) {
			if !asks {
				x.connection.note(&x.verdict, x.request.Scheme, x.request.Method, x.request.Path.Send)
			}
			return why
		}
	}
}

func (x *exchange) parts() policy.Parts {
	return policy.Parts{
		Scheme: x.connection.scheme, Method: x.in.Method, Target: x.in.RequestURI, Host: x.in.Host, Header: x.in.Header,
		Length: x.in.ContentLength, ServerName: x.connection.serverName,
		Body: func() policy.Body {
			ctx, cancel := context.WithTimeout(x.ctx, holdMost)
			defer cancel()
			return x.body.judged(ctx, x.in.Header, x.in.ContentLength)
		},
	}
}

// hard is a refusal that no rule can lift.
func (x *exchange) hard(fault *policy.Fault) *refusal {
	verdict := policy.Verdict{Action: policy.Deny, Reason: fault.Reason}
	x.connection.note(&verdict, x.connection.scheme, x.in.Method, x.path())
	code := "egress_denied"
	if fault.Status == http.StatusMisdirectedRequest {
		code = "egress_misdirected"
	}
	return &refusal{
		status: fault.Status, code: code, message: "the request cannot leave this sandbox: " + fault.Reason,
		remedy: "a plain request to the server that the connection is to",
	}
}

func (x *exchange) path() string {
	if x.request != nil {
		return x.request.Path.Send
	}
	return ""
}

// refuse answers for the server, or breaks off a response that has begun.
func (x *exchange) refuse(why *refusal) {
	if x.answer.begun || x.connection.ctx.Err() != nil {
		panic(http.ErrAbortHandler)
	}
	x.mu.Lock()
	if x.ctx.Err() != nil || x.refusal != nil {
		x.cut()
	}
	x.mu.Unlock()
	x.code = why.code
	why.write(x.answer, x.in, x.connection.host(), x.path())
	if x.in.ProtoMajor == 2 && !policy.IsGRPC(x.in.Header) && x.in.Header.Get("Expect") == "" {
		x.linger()
	}
}

// linger takes the rest of the body of a refused request, for a short while. The server resets a stream that it has not
// read to its end, and curl then loses an answer that it has not read yet.
func (x *exchange) linger() {
	output := http.NewResponseController(x.answer)
	if x.input.ended.Load() || output.Flush() != nil {
		return
	}
	x.mu.Lock()
	if x.isCut {
		x.mu.Unlock()
		return
	}
	_ = output.SetReadDeadline(time.Now().Add(lingerMostOfStream))
	x.mu.Unlock()
	_, _ = io.Copy(io.Discard, x.input)
}

// fail ends the exchange, and tells the guest the reason if the response has not begun.
func (x *exchange) fail(why *refusal) error {
	x.mu.Lock()
	if x.refusal == nil {
		x.refusal = why
	}
	x.mu.Unlock()
	x.cancel(why)
	return why
}

func (x *exchange) failBy(fault error) error {
	if !errors.Is(fault, limit.ErrTotal) {
		return fault
	}
	return x.fail(spent(x.verdict.Rule))
}

func spent(rule *policy.Rule) *refusal {
	return &refusal{
		status: http.StatusForbidden, code: "egress_denied", rule: rule,
		message: "the egress policy of this sandbox denies this request: " + limit.ErrTotal.Error(),
		remedy:  "a larger total_bytes in the rule",
	}
}

// betray unplugs the sandbox because a canary came out of it.
func (x *exchange) betray(where string) error {
	x.connection.sandbox.unplug(x.connection, nil, "a canary appeared in "+where+" to "+x.connection.host())
	verdict := policy.Verdict{Action: policy.Unplug, Reason: errCanary.Error()}
	x.connection.note(&verdict, x.connection.scheme, x.in.Method, "")
	why := &refusal{status: http.StatusForbidden, code: "egress_denied", message: errCanary.Error()}
	x.connection.end(why)
	return x.fail(why)
}

// setAgain says, before the exchange is noted, whether it is held then.
func (x *exchange) setAgain(asks bool) {
	if asks == (x.again != nil) {
		return
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.again = nil; asks {
		x.again = make(chan struct{}, 1)
	}
}

// judgeAgain ends the exchange if the new rules do not allow it. One that is held is judged where it is held.
func (x *exchange) judgeAgain(by *ruling) {
	x.mu.Lock()
	again := x.again
	x.mu.Unlock()
	if again != nil {
		wake(again)
		return
	}
	verdict := x.judgedBy(by)
	if verdict.Passes() {
		return
	}
	why := denied(&verdict)
	if x.request == nil {
		x.cancel(why)
		return
	}
	x.fail(why)
}
