package gateway

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"strings"
	"sync/atomic"

	"atoll/edge/models"
)

// attempt is what has come of sending a request to one model.
type attempt struct {
	candidate models.Candidate
	response  *http.Response
	err       error
	done      func()
	isSent    atomic.Bool // something of it, so that it may be served
}

// end closes what is open of it.
func (a *attempt) end() {
	if a.response != nil {
		a.response.Body.Close()
	}
	a.done()
}

// again tells whether another key or another model may serve the request instead.
func (a *attempt) again() bool {
	if a.err != nil {
		return !a.isSent.Load()
	}
	return a.response.StatusCode == http.StatusTooManyRequests || a.response.StatusCode >= http.StatusInternalServerError
}

// send sends the request to one model after the other, until one serves it.
func (c *call) send(ctx context.Context) *attempt {
	var last *attempt
	for _, each := range c.candidates {
		for key := range max(each.Provider.Keys, 1) {
			if last != nil {
				last.end()
			}
			last = c.sendBounded(ctx, each, key)
			if !last.again() || ctx.Err() != nil {
				return last
			}
		}
	}
	return last
}

// Older models refuse more output than they can give. They are asked for less.
var outputOlder = []int64{16 << 10, 4 << 10}

// sendBounded sends the request, with less output where that is the gateway's own wish and too much.
func (c *call) sendBounded(ctx context.Context, to models.Candidate, key int) *attempt {
	bound := int64(0)
	if c.ask != nil && c.limits != (models.Limits{}) && c.ask.HasOutput() && c.ask.Most == 0 {
		bound = c.output
	}
	made := c.sendOnce(ctx, to, key, bound)
	for _, less := range outputOlder {
		if bound > less && made.refusesBound() {
			made.end()
			bound = less
			made = c.sendOnce(ctx, to, key, bound)
		}
	}
	return made
}

const errorMost = 64 << 10

// refusesBound tells whether a provider has found the bound too high. The answer can still be read.
func (a *attempt) refusesBound() bool {
	if a.err != nil || a.response.StatusCode != http.StatusBadRequest {
		return false
	}
	body := a.response.Body
	text, err := io.ReadAll(io.LimitReader(body, errorMost))
	a.response.Body = struct {
		io.Reader
		io.Closer
	}{io.MultiReader(bytes.NewReader(text), body), body}
	return err == nil && (bytes.Contains(text, []byte("max_completion_tokens")) || bytes.Contains(text, []byte("max_tokens")) ||
		bytes.Contains(text, []byte("max_output_tokens")))
}

func (c *call) sendOnce(ctx context.Context, to models.Candidate, key int, bound int64) *attempt {
	made := &attempt{candidate: to}
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{WroteHeaders: func() { made.isSent.Store(true) }})
	out, err := c.request(ctx, to, key, bound)
	if err != nil {
		made.err, made.done = err, func() {}
		return made
	}
	way, done := c.caller.Reach(to.Provider)
	made.done = done
	if made.response, made.err = way.RoundTrip(out); made.err != nil {
		return made
	}
	if scrubber := c.offer.scrubbers[to.Provider.Name]; scrubber != nil {
		made.err = scrubber.Response(made.response)
	}
	return made
}

// request is the guest's, as the provider gets it.
func (c *call) request(ctx context.Context, to models.Candidate, key int, bound int64) (*http.Request, error) {
	at := to.Provider
	path := at.Path + c.below
	plain, err := url.PathUnescape(path)
	if err != nil {
		return nil, err
	}
	body := func() (io.ReadCloser, error) {
		text, _ := c.sent(to.Model, bound)
		return io.NopCloser(text), nil
	}
	text, size := c.sent(to.Model, bound)
	out := (&http.Request{
		Method: c.in.Method, Header: headers(c.in.Header), ContentLength: size, Host: at.Authority(),
		URL: &url.URL{Scheme: at.Scheme(), Host: at.Authority(), Path: plain, RawPath: path, RawQuery: c.in.URL.RawQuery},
	}).WithContext(ctx)
	if size > 0 {
		// So that it may be sent again if the provider has closed an idle connection.
		out.Body, out.GetBody = io.NopCloser(text), body
	}
	if at.Keys == 0 {
		return out, nil
	}
	value, ok := c.offer.keys.Use(keyName(at.Name, key))
	if !ok || bytes.ContainsAny(value, "\r\n\x00") {
		return nil, errors.New("its key cannot be used")
	}
	if at.Kind == models.Anthropic {
		out.Header.Set("X-Api-Key", string(value))
	} else {
		out.Header.Set("Authorization", "Bearer "+string(value))
	}
	return out, nil
}

func (c *call) sent(model string, bound int64) (io.Reader, int64) {
	if c.ask == nil {
		return bytes.NewReader(c.body), int64(len(c.body))
	}
	return c.ask.Body(model, bound)
}

// What of the guest's headers stays here: its keys, what belongs to its connection, and what would have the provider do
// something else.
var kept = []string{
	"Authorization", "Proxy-Authorization", "X-Api-Key", "Api-Key", "X-Goog-Api-Key", "Cookie", "Accept-Encoding", "Connection",
	"Content-Length", "Expect", "Forwarded", "Keep-Alive", "Openai-Organization", "Openai-Project", "Proxy-Connection", "Te",
	"Trailer", "Transfer-Encoding", "Upgrade", "Via", "X-Http-Method", "X-Http-Method-Override", "X-Method-Override", "X-Real-Ip",
}

// headers are those of the guest that are passed on.
func headers(came http.Header) http.Header {
	out := came.Clone()
	for _, value := range came["Connection"] {
		for name := range strings.SplitSeq(value, ",") {
			out.Del(strings.TrimSpace(name))
		}
	}
	for _, name := range kept {
		out.Del(name)
	}
	for name := range out {
		// Some servers take _ for -.
		if strings.Contains(name, "_") || strings.HasPrefix(name, "X-Forwarded-") {
			delete(out, name)
		}
	}
	if _, ok := out["User-Agent"]; !ok {
		out["User-Agent"] = nil // none of Go's
	}
	return out
}
