package main

import (
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
)

const (
	attempts     = 6
	firstPause   = 300 * time.Millisecond
	longestPause = 60 * time.Second
	// The limit of everything but blobs: manifests, tokens, errors.
	answerMost = 8 << 20
)

// guarded refuses plain http but where it was allowed, asks again where a server is busy, and bounds its answers.
type guarded struct {
	inner    http.RoundTripper
	insecure []string
	// Whether the registry is on this machine itself. No other registry may send requests to a program that listens here.
	local bool
}

func (g *guarded) RoundTrip(request *http.Request) (*http.Response, error) {
	if request.URL.Scheme != "https" && !slices.Contains(g.insecure, request.URL.Host) &&
		!(g.local && isInsecure(request.URL.Host, nil)) {
		return nil, newFault("insecure", "%s uses plain http, which is allowed only on this machine", request.URL.Host)
	}
	pause := firstPause
	for attempt := 1; ; attempt++ {
		response, err := g.inner.RoundTrip(request)
		if err != nil {
			return nil, err
		}
		if attempt == attempts || !isBusy(response.StatusCode) || request.Body != nil && request.Body != http.NoBody {
			return bounded(request, response), nil
		}
		response.Body.Close()
		select {
		case <-time.After(pauseOf(response, pause)):
		case <-request.Context().Done():
			return nil, request.Context().Err()
		}
		pause *= 2
	}
}

func isBusy(status int) bool {
	return status == http.StatusTooManyRequests || status == http.StatusRequestTimeout ||
		status >= 500 && status != http.StatusNotImplemented
}

func pauseOf(response *http.Response, pause time.Duration) time.Duration {
	if seconds, err := strconv.Atoi(response.Header.Get("Retry-After")); err == nil && seconds >= 0 {
		return min(time.Duration(seconds)*time.Second, longestPause)
	}
	return pause + rand.N(pause)
}

// ofBlob marks the context of requests for blobs, also where a registry sends them elsewhere.
type ofBlob struct{}

func bounded(request *http.Request, response *http.Response) *http.Response {
	if request.Context().Value(ofBlob{}) == nil {
		response.Body = &boundedBody{ReadCloser: response.Body, left: answerMost}
	}
	return response
}

type boundedBody struct {
	io.ReadCloser
	left int64
}

func (b *boundedBody) Read(into []byte) (int, error) {
	count, err := b.ReadCloser.Read(into)
	if b.left -= int64(count); b.left < 0 {
		return 0, errors.New("the registry's answer is longer than 8 MiB")
	}
	return count, err
}

// isInsecure tells whether plain http will do for a server: this machine itself, or a server that the user named.
func isInsecure(server string, named []string) bool {
	if slices.Contains(named, server) {
		return true
	}
	host := server
	if cut, _, err := net.SplitHostPort(server); err == nil {
		host = cut
	}
	address := net.ParseIP(strings.Trim(host, "[]"))
	return host == "localhost" || address != nil && address.IsLoopback()
}
