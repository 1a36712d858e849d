package serve

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"log"
	"net/http"
	"net/http/httputil"
	"net/url"
	"slices"
	"sync"
	"time"

	"atoll/edge/change"
	"atoll/edge/control"
	"atoll/policy"
)

// prepare checks limits, and looks for canaries in a body of known length.
func (x *exchange) prepare() *refusal {
	rule := passing(&x.verdict)
	if !x.ruling.observe {
		x.meter = x.connection.sandbox.meters.Of(rule)
	}
	if wait, ok := x.meter.Request(now()); !ok {
		return atLimit(rule, wait)
	}
	if x.meter.Spent() {
		return spent(rule)
	}
	if x.ruling.canaries.Any() && x.in.ContentLength > 0 && x.in.ContentLength <= canaryMost {
		if err := x.body.hold(x.ctx, x.in.ContentLength+1); err != nil {
			return &refusal{status: http.StatusBadRequest, code: "bad_request", message: "the body does not come"}
		}
		if x.ruling.canaries.Fresh().Next(x.body.held) {
			return x.betray("the body of a request").(*refusal)
		}
	}
	return nil
}

func atLimit(rule *policy.Rule, wait time.Duration) *refusal {
	return &refusal{
		status: http.StatusTooManyRequests, code: "egress_limited", rule: rule, retry: wait,
		message: "the egress policy of this sandbox limits the requests of rule " + rule.Label(),
		remedy:  "wait, or raise the limit of the rule",
	}
}

// change applies the rule's changes to a copy of the request.
func (x *exchange) change(rule *policy.Rule) *refusal {
	x.target = &change.Target{
		Scheme: x.request.Scheme, Name: x.connection.to.Name, Port: x.connection.to.Port, Header: x.request.Header,
		Path: x.request.Path.Send, Query: x.request.Query.Send,
	}
	if changes(rule) {
		x.target.Header = x.request.Header.Clone()
	}
	if change.NeedsBody(rule) {
		body := x.read(x.in.Header, x.in.ContentLength)
		if body.Unclear == "" && !x.body.all {
			body.Unclear = "the body is longer than 256 KiB"
		}
		if body.Unclear != "" {
			return x.unsendable(rule, "a secret cannot go into the body: "+body.Unclear)
		}
		x.target.Body = body.Bytes
	}
	err := change.Apply(rule, x.ruling.secrets, x.target)
	x.echoes = x.connection.sent(x.target.Injected)
	if err != nil {
		return x.unsendable(rule, err.Error())
	}
	if len(x.target.Injected) > 0 {
		change.Encodings(x.target.Header)
	}
	return nil
}

// unsendable refuses a request that the rule cannot change as it should, and the verdict says so too.
func (x *exchange) unsendable(rule *policy.Rule, why string) *refusal {
	x.verdict = unsendable(rule, why)
	return &refusal{
		status: http.StatusForbidden, code: "egress_denied", rule: rule,
		message: "the request cannot be sent as the egress policy of this sandbox wants it: " + why,
		remedy:  "correct the secret or the rule",
	}
}

// pass sends the request and passes the response on.
func (x *exchange) pass() {
	c := x.connection
	where := place{host: c.host(), address: c.to.Address, port: c.to.Port, wire: plainHTTP1}
	switch {
	case c.scheme == "https" && x.target.Header.Get("Upgrade") != "":
		where.wire = inTLS1
	case c.scheme == "https":
		where.wire = inTLS
	case x.in.ProtoMajor == 2:
		where.wire = plainHTTP2
	}
	x.upstream = c.sandbox.pool.use(c.sandbox.edge, where)
	defer x.upstream.done()
	if x.in.ProtoMajor == 1 {
		// Otherwise a server that answers while it reads would be waited for in vain. HTTP/2 always can.
		_ = http.NewResponseController(x.answer).EnableFullDuplex()
		x.isDuplex = true
	}
	forward.ServeHTTP(x.answer, x.in)
}

var forward = &httputil.ReverseProxy{
	Rewrite: func(both *httputil.ProxyRequest) { exchangeOf(both.In).rewrite(both.Out) },
	Transport: roundTripper(func(out *http.Request) (*http.Response, error) {
		return exchangeOf(out).upstream.transport.RoundTrip(out)
	}),
	ModifyResponse: func(response *http.Response) error { return exchangeOf(response.Request).receive(response) },
	ErrorHandler: func(_ http.ResponseWriter, out *http.Request, err error) {
		exchangeOf(out).broke(err)
	},
	BufferPool: buffers{},
	ErrorLog:   log.New(io.Discard, "", 0),
}

type roundTripper func(*http.Request) (*http.Response, error)

// RoundTrip is of http.RoundTripper.
func (r roundTripper) RoundTrip(out *http.Request) (*http.Response, error) { return r(out) }

func exchangeOf(request *http.Request) *exchange {
	return request.Context().Value(exchangeKey{}).(*exchange)
}

// buffers are shared by all copies of bodies.
type buffers struct{}

var bufferPool = sync.Pool{New: func() any { return new([32 << 10]byte) }}

// Get is of httputil.BufferPool, as Put.
func (buffers) Get() []byte { return bufferPool.Get().(*[32 << 10]byte)[:] }

func (buffers) Put(buffer []byte) {
	bufferPool.Put((*[32 << 10]byte)(buffer))
}

// rewrite makes the request that was judged, with the changes of the rule.
func (x *exchange) rewrite(out *http.Request) {
	hops := out.Header
	out.Header = x.target.Header.Clone()
	for _, name := range []string{"Te", "Trailer", "Transfer-Encoding"} {
		out.Header.Del(name)
	}
	for _, name := range []string{"Te", "Connection", "Upgrade"} {
		if values, ok := hops[name]; ok {
			out.Header[name] = values
		}
	}
	// Do not use an opaque URL: Go writes one that begins with // as the URL of another host.
	path, err := url.PathUnescape(x.target.Path)
	if err != nil {
		panic(http.ErrAbortHandler) // its escapes were checked before
	}
	out.URL = &url.URL{
		Scheme: x.upstream.place.wire.scheme(), Host: x.upstream.place.authority(),
		Path: path, RawPath: x.target.Path, RawQuery: x.target.Query,
	}
	out.Host = x.request.Send
	if out.Body == nil {
		return
	}
	// A server that expects no body with this method may take it for the next request on the connection.
	out.Close = !slices.Contains([]string{http.MethodPost, http.MethodPut, http.MethodPatch}, x.in.Method)
	inner := x.body.whole(out.Body)
	if x.target.Body != nil {
		inner = bytes.NewReader(x.target.Body)
		out.ContentLength = int64(len(x.target.Body))
	}
	if len(x.body.held) > 0 {
		out.Header.Del("Expect") // the guest was told to go on
	}
	out.Trailer = x.trailer()
	out.Body = &outgoing{
		Closer: out.Body, inner: inner, exchange: x, meter: x.meter, most: x.longest(),
		canaries: x.ruling.canaries.Fresh(), trailers: func() bool { return x.fillTrailer(out.Trailer) },
	}
}

// trailer has the names of the trailers that may be sent: none that the rule sets, removes or judges as a header, and none
// that the ceiling's judges.
func (x *exchange) trailer() http.Header {
	var trailer http.Header
	for name := range x.in.Trailer {
		if x.changes(name) {
			continue
		}
		if trailer == nil {
			trailer = http.Header{}
		}
		trailer[name] = nil
	}
	return trailer
}

func (x *exchange) changes(name string) bool {
	same := func(other string) bool { return policy.SameHeader(other, name) }
	if x.above != nil && hasKey(x.above.Headers, same) {
		return true
	}
	rule := x.verdict.Rule
	if rule == nil {
		return false
	}
	return hasKey(rule.SetHeaders, same) || hasKey(rule.Headers, same) ||
		slices.ContainsFunc(rule.RemoveHeaders, same) || same("Authorization") && len(rule.Inject) > 0 ||
		slices.ContainsFunc(rule.Inject, func(each policy.Inject) bool { return same(each.Key) })
}

func hasKey[V any](of map[string]V, is func(string) bool) bool {
	for key := range of {
		if is(key) {
			return true
		}
	}
	return false
}

// fillTrailer copies the trailers when the body has ended. It fails when there is a canary in them.
func (x *exchange) fillTrailer(trailer http.Header) bool {
	for name := range trailer {
		trailer[name] = x.in.Trailer[name]
		if slices.ContainsFunc(trailer[name], x.ruling.canaries.In) {
			return false
		}
	}
	return true
}

// receive scrubs and counts a response.
func (x *exchange) receive(response *http.Response) error {
	scrubber := change.NewScrubber(x.echoes)
	if response.StatusCode == http.StatusSwitchingProtocols {
		scrubber.Header(response.Header)
		if both, ok := response.Body.(io.ReadWriteCloser); ok && x.meter != nil {
			response.Body = &incomingBoth{incoming{both, x, x.meter}, both}
		}
		return nil
	}
	if err := scrubber.Response(response); err != nil {
		return err
	}
	if response.Close && x.in.ProtoMajor == 1 {
		response.Header.Set("Connection", "close") // as without inspection: some clients wait for that
	}
	if x.meter != nil {
		response.Body = &incoming{response.Body, x, x.meter}
	}
	return nil
}

// broke answers when no response came.
func (x *exchange) broke(err error) {
	x.mu.Lock()
	why := x.refusal
	x.mu.Unlock()
	if why != nil {
		x.refuse(why)
		return
	}
	if x.ctx.Err() != nil {
		panic(http.ErrAbortHandler) // the guest is gone
	}
	x.refuse(unreachable(err, x.connection.host(), x.echoes))
}

func unreachable(err error, host string, echoes []change.Echo) *refusal {
	text := string(change.NewScrubber(echoes).Bytes([]byte(err.Error())))
	why := &refusal{
		status: http.StatusBadGateway, code: "upstream_unreachable", message: host + " cannot be reached: " + text,
		remedy: "check the name and the port, and whether the server is up",
	}
	var refused *control.RefusedError
	var certificate *tls.CertificateVerificationError
	var unknown x509.UnknownAuthorityError
	switch {
	case errors.As(err, &refused):
		why.status, why.code, why.remedy = http.StatusForbidden, "egress_denied", "a rule that names the address"
		why.message = "the egress policy of this sandbox denies this request: " + refused.Reason
	case errors.As(err, &certificate) || errors.As(err, &unknown):
		why.code, why.message = "upstream_certificate", "the certificate of "+host+" cannot be trusted: "+text
		why.remedy = "a server with a valid certificate, or `passthrough` for a name that the sandbox itself is to check"
	}
	return why
}

// hasCanary looks into all of a request but its body.
func (x *exchange) hasCanary() bool {
	canaries := x.ruling.canaries
	if !canaries.Any() {
		return false
	}
	if canaries.In(x.in.RequestURI) || canaries.In(x.in.Host) {
		return true
	}
	for name, values := range x.in.Header {
		if canaries.In(name) || slices.ContainsFunc(values, canaries.In) {
			return true
		}
	}
	return false
}
