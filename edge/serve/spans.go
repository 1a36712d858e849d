package serve

import (
	"net/http"

	"atoll/edge/traces"
)

// spanOf begins the span of a request. It is nil if the request belongs to no trace, or if nobody exports spans.
func (c *connection) spanOf(in *http.Request) *traces.Span {
	parent, ok := traces.ParentOf(in.Header)
	if !ok {
		return nil
	}
	if current := c.sandbox.current(); current == nil || !current.spans {
		return nil
	}
	span := traces.Begin(parent)
	span.Method, span.Scheme, span.Host, span.Port = in.Method, c.scheme, c.host(), c.to.Port
	return span
}

// traced completes the span of a request that has ended.
func (x *exchange) traced(span *traces.Span) *traces.Span {
	span.Status, span.Received, span.Error = x.answer.status, x.answer.bytes, x.code
	if x.input != nil {
		span.Sent = x.input.bytes.Load()
	}
	span.Action = x.verdict.Action
	if x.verdict.Rule != nil {
		span.Rule = x.verdict.Rule.Label()
	}
	if !x.isWhole && span.Error == "" {
		span.Error = traces.Aborted
	}
	return span
}

// tracedModel completes the span of a request to the gateway that has ended.
func tracedModel(span *traces.Span, reply *answer) *traces.Span {
	span.Status, span.Received = reply.status, reply.bytes
	return span
}
