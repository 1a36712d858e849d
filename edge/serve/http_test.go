package serve

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptrace"
	"net/textproto"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

func TestRequestsPassInEveryVersionOfHTTP(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.policy(`{"action":"allow","methods":["GET"]}`)
	handler := func(writer http.ResponseWriter, request *http.Request) {
		fmt.Fprintf(writer, "%s %s %s", request.Proto, request.Host, request.RequestURI)
	}
	w.server("plain.x", handler)
	w.secure("one.x", false, handler)
	w.secure("two.x", true, handler)
	for _, c := range []struct {
		client *http.Client
		url    string
		want   string
	}{
		{w.client(), "http://plain.x/a?b=c", "HTTP/1.1 plain.x /a?b=c"},
		{w.plainH2(), "http://plain.x/a", "HTTP/2.0 plain.x /a"},
		{w.client(), "https://one.x/a", "HTTP/1.1 one.x /a"},
		{w.clientOver(false), "https://two.x/a", "HTTP/2.0 two.x /a"},
		{w.client(), "https://two.x/a/%7Eb/../c", "HTTP/2.0 two.x /a/c"},
	} {
		got := do(t, c.client, "GET", c.url, "")
		expect(t, got.text, c.want)
		expect(t, got.StatusCode, 200)
		expect(t, do(t, c.client, "POST", c.url, "x").StatusCode, 403)
	}
}

func TestHeadersPassAsTheyCame(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.policy(inspected)
	got := make(chan http.Header, 1)
	w.server("a.x", func(writer http.ResponseWriter, request *http.Request) {
		got <- request.Header
		for _, name := range []string{"Date", "Content-Type"} {
			writer.Header()[name] = nil
		}
		writer.Write([]byte("<html>"))
	})
	conn := w.take("a.x", 80)
	answer := talk(t, conn, "GET / HTTP/1.1\r\nHost: a.x\r\nX-Forwarded-For: 1.1.1.1\r\nAccept-Encoding: br\r\n"+
		"Connection: close, x-hop\r\nX-Hop: 1\r\nProxy-Authorization: Basic x\r\n\r\n")
	expect(t, <-got, http.Header{"X-Forwarded-For": {"1.1.1.1"}, "Accept-Encoding": {"br"}})
	for _, added := range []string{"Date", "Content-Type", "Via"} {
		if strings.Contains(answer, added+":") {
			t.Fatalf("%s was added: %q", added, answer)
		}
	}
}

func TestARefusalExplainsItself(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.policy(`{"action":"allow","name":"read it","methods":["GET"]}`)
	w.secure("a.x", true, func(http.ResponseWriter, *http.Request) { t.Error("it arrived") })
	got := do(t, w.client(), "POST", "https://a.x/p?q=secret", "x")
	expect(t, got.StatusCode, 403)
	expect(t, got.Header.Get("X-Atoll-Refused"), "1")
	var body refusalBody
	must(t, json.Unmarshal([]byte(got.text), &body))
	expect(t, body.Error+" "+body.Host+" "+body.Method+" "+body.Path, "egress_denied a.x POST /p")
	contains(t, body.Remedy, "read it allows it with the method GET")
	if body.Rule != nil {
		t.Fatal("no rule decided")
	}
	git := do(t, w.client(), "POST", "https://a.x/p", "x", "User-Agent", "git/2.39.5")
	expect(t, git.Header.Get("Content-Type"), "text/plain; charset=utf-8")
	expect(t, git.text, "the egress policy of this sandbox denies this request: no rule allows it\n"+
		"remedy: rule read it allows it with the method GET\n")
	grpc := do(t, w.client(), "POST", "https://a.x/s/m", "x", "Content-Type", "application/grpc+proto")
	expect(t, grpc.StatusCode, 200)
	expect(t, grpc.Header.Get("Grpc-Status"), "7")
	contains(t, grpc.Header.Get("Grpc-Message"), "denies this request")
	eventually(t, "it is told once a second", func() bool {
		w.mu.Lock()
		defer w.mu.Unlock()
		return len(w.entries) >= 2 && w.entries[0].Path == "/p" && w.entries[0].Action == "deny" &&
			w.entries[0].Scheme == "https" && w.entries[0].Port == 443 &&
			w.entries[0].Reason == "no rule allows it; rule read it allows it with the method GET"
	})
}

func TestTrailersLikeThoseOfGRPC(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.policy(`{"action":"allow","paths":["/s/*"]}`)
	handler := func(writer http.ResponseWriter, request *http.Request) {
		writer.Header().Set("Content-Type", "application/grpc")
		flusher := writer.(http.Flusher)
		flusher.Flush()
		line := bufio.NewReader(request.Body)
		for {
			text, err := line.ReadString('\n')
			if err != nil {
				break
			}
			io.WriteString(writer, "echo "+text)
			flusher.Flush()
		}
		writer.Header().Set(http.TrailerPrefix+"Grpc-Status", "0")
		writer.Header().Set(http.TrailerPrefix+"X-Sent", request.Trailer.Get("X-End"))
	}
	w.server("plain.x", handler)
	w.secure("two.x", true, handler)
	for url, client := range map[string]*http.Client{"http://plain.x/s/m": w.plainH2(), "https://two.x/s/m": w.client()} {
		reader, writer := io.Pipe()
		request, err := http.NewRequest("POST", url, reader)
		must(t, err)
		request.Header.Set("Te", "trailers")
		request.Trailer = http.Header{"X-End": nil}
		response, err := client.Do(request)
		must(t, err)
		lines := bufio.NewReader(response.Body)
		for _, text := range []string{"one\n", "two\n"} {
			io.WriteString(writer, text) // answered while the request goes on
			got, err := lines.ReadString('\n')
			must(t, err)
			expect(t, got, "echo "+text)
		}
		request.Trailer.Set("X-End", "1")
		writer.Close()
		_, err = io.ReadAll(lines)
		must(t, err)
		expect(t, response.Trailer.Get("Grpc-Status"), "0")
		expect(t, response.Trailer.Get("X-Sent"), "1")
	}
}

func TestBigBodiesPassUnchanged(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.policy(`{"action":"allow","methods":["PUT"]}`)
	body := bytes.Repeat([]byte("0123456789abcdef"), 1<<20)
	want := fmt.Sprintf("%x", sha256.Sum256(body))
	handler := func(writer http.ResponseWriter, request *http.Request) {
		got, err := io.ReadAll(request.Body)
		if err != nil {
			t.Error(err)
		}
		writer.Header().Set("X-Got", fmt.Sprintf("%x %d", sha256.Sum256(got), request.ContentLength))
		writer.Write(got)
	}
	w.server("plain.x", handler)
	w.secure("two.x", true, handler)
	for _, url := range []string{"http://plain.x/", "https://two.x/"} {
		for _, h2 := range []bool{false, true} {
			for _, length := range []int64{int64(len(body)), -1} {
				request, err := http.NewRequest("PUT", url, io.NopCloser(bytes.NewReader(body)))
				must(t, err)
				request.ContentLength = length
				response, err := w.clientOver(h2).Do(request)
				must(t, err)
				hash := sha256.New()
				_, err = io.Copy(hash, response.Body)
				must(t, err)
				response.Body.Close()
				expect(t, fmt.Sprintf("%x", hash.Sum(nil)), want)
				expect(t, response.Header.Get("X-Got"), fmt.Sprint(want, " ", length))
			}
		}
	}
}

func TestStatusWithoutBodyAndEarlyHints(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.policy(inspected)
	w.secure("a.x", true, func(writer http.ResponseWriter, request *http.Request) {
		switch request.URL.Path {
		case "/204":
			writer.WriteHeader(204)
		case "/304":
			writer.Header().Set("Etag", `"x"`)
			writer.WriteHeader(304)
		case "/hints":
			writer.Header().Set("Link", "</a>")
			writer.WriteHeader(103)
			writer.WriteHeader(200)
		case "/head":
			writer.Header().Set("Content-Length", "12345")
		case "/go":
			http.Redirect(writer, request, "https://other.x/", http.StatusFound)
		}
	})
	client := w.client()
	expect(t, do(t, client, "GET", "https://a.x/204", "").StatusCode, 204)
	expect(t, do(t, client, "GET", "https://a.x/304", "").Header.Get("Etag"), `"x"`)
	expect(t, do(t, client, "HEAD", "https://a.x/head", "").ContentLength, 12345)
	redirect := do(t, client, "GET", "https://a.x/go", "")
	expect(t, redirect.StatusCode, 302)
	expect(t, redirect.Header.Get("Location"), "https://other.x/")
	hinted := make(chan string, 1)
	ctx := httptrace.WithClientTrace(context.Background(), &httptrace.ClientTrace{
		Got1xxResponse: func(code int, header textproto.MIMEHeader) error {
			hinted <- fmt.Sprint(code, header.Get("Link"))
			return nil
		},
	})
	request, err := http.NewRequestWithContext(ctx, "GET", "https://a.x/hints", nil)
	must(t, err)
	response, err := client.Do(request)
	must(t, err)
	response.Body.Close()
	expect(t, <-hinted, "103</a>")
}

func TestEventsComeAtOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.policy(inspected)
	release := make(chan struct{})
	w.server("a.x", func(writer http.ResponseWriter, request *http.Request) {
		writer.Header().Set("Content-Type", "text/event-stream")
		io.WriteString(writer, "data: 1\n\n")
		writer.(http.Flusher).Flush()
		<-release
	})
	response, err := w.client().Get("http://a.x/")
	must(t, err)
	line, err := bufio.NewReader(response.Body).ReadString('\n')
	must(t, err)
	expect(t, line, "data: 1\n")
	close(release)
	response.Body.Close()
}

func TestExpectContinueIsAnsweredByTheServer(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.policy(`{"action":"allow","paths":["/ok","/no"]}`)
	w.server("a.x", func(writer http.ResponseWriter, request *http.Request) {
		if request.URL.Path == "/no" {
			writer.WriteHeader(413)
			return
		}
		text, _ := io.ReadAll(request.Body)
		writer.Write(text)
	})
	for path, answer := range map[string]string{"/ok": "100 Continue\r\n", "/no": "413 ", "/denied": "403 "} {
		hear(t, w.take("a.x", 80), "POST "+path+" HTTP/1.1\r\nHost: a.x\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n",
			"HTTP/1.1 "+answer)
	}
}

func TestWebSocketsPass(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.policy(`{"action":"allow","paths":["/ws"]}`)
	handler := func(writer http.ResponseWriter, request *http.Request) {
		if request.Header.Get("Upgrade") == "" {
			writer.WriteHeader(426)
			return
		}
		conn, both, err := http.NewResponseController(writer).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close()
		io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
		io.Copy(conn, both)
	}
	w.server("plain.x", handler)
	w.secure("two.x", true, handler)
	head := "GET /ws HTTP/1.1\r\nHost: %s\r\nConnection: keep-alive, Upgrade\r\nUpgrade: %s\r\n\r\n"
	plain := w.take("plain.x", 80)
	secured := tls.Client(w.take("two.x", 443), &tls.Config{RootCAs: w.trust, ServerName: "two.x"})
	for name, conn := range map[string]io.ReadWriter{"plain.x": plain, "two.x": secured} {
		fmt.Fprintf(conn, head, name, "websocket")
		reader := bufio.NewReader(conn)
		response, err := http.ReadResponse(reader, nil)
		must(t, err)
		expect(t, response.StatusCode, 101)
		for _, text := range []string{"GET /denied HTTP/1.1\r\n", "\x81\x00\n"} {
			io.WriteString(conn, text)
			got, err := reader.ReadString('\n')
			must(t, err)
			expect(t, got, text)
		}
	}
	contains(t, talk(t, w.take("plain.x", 80), fmt.Sprintf(head, "plain.x", "h2c")), "HTTP/1.1 426 ")
	contains(t, talk(t, w.take("plain.x", 80), strings.Replace(
		fmt.Sprintf(head, "plain.x", "websocket"), "/ws", "/other", 1)), "HTTP/1.1 403 ")
}

func TestUpstreamConnectionsAreReusedAndNotShared(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.policy(inspected)
	w.server("a.x", func(http.ResponseWriter, *http.Request) {})
	client := w.client()
	for range 5 {
		expect(t, do(t, client, "GET", "http://a.x/", "").StatusCode, 200)
	}
	expect(t, do(t, w.client(), "GET", "http://a.x/", "").StatusCode, 200)
	expect(t, w.dialled(), 1)
	w.sandbox = "other"
	w.policy(inspected)
	expect(t, do(t, w.client(), "GET", "http://a.x/", "").StatusCode, 200)
	expect(t, w.dialled(), 2)
}

func TestAGuestThatLeavesEndsTheRequestUpstream(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.policy(inspected)
	var began, ended atomic.Int32
	w.server("a.x", func(_ http.ResponseWriter, request *http.Request) {
		began.Add(1)
		<-request.Context().Done()
		ended.Add(1)
	})
	conn := w.take("a.x", 80)
	io.WriteString(conn, "GET / HTTP/1.1\r\nHost: a.x\r\n\r\n")
	eventually(t, "it arrives", func() bool { return began.Load() == 1 })
	conn.Close()
	eventually(t, "it ends", func() bool { return ended.Load() == 1 })
	eventually(t, "it is forgotten", func() bool {
		s := w.edge.all()[0]
		s.mu.Lock()
		defer s.mu.Unlock()
		return len(s.connections) == 0
	})
}

func TestServersThatCannotBeReachedOrTrusted(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.policy(inspected)
	got := do(t, w.client(), "GET", "http://nowhere.x/", "")
	expect(t, got.StatusCode, 502)
	contains(t, got.text, "upstream_unreachable")
	w.secure("real.x", true, func(http.ResponseWriter, *http.Request) { t.Error("it arrived") })
	w.named("fake.x", w.addresses["real.x"])
	got = do(t, w.client(), "GET", "https://fake.x/", "")
	expect(t, got.StatusCode, 502)
	contains(t, got.text, "upstream_certificate")
	w.refused = "10.0.0.1 is a private address"
	got = do(t, w.client(), "GET", "http://inside.x/", "")
	expect(t, got.StatusCode, 403)
	contains(t, got.text, "10.0.0.1 is a private address")
}

func TestAnIdleConnectionStaysOpen(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.policy(inspected)
	w.server("a.x", func(writer http.ResponseWriter, _ *http.Request) { io.WriteString(writer, "hello") })
	conn := w.take("a.x", 80)
	for range 2 {
		answer := talk(t, conn, "GET / HTTP/1.1\r\nHost: a.x\r\n\r\n")
		contains(t, answer, "hello")
		conn.SetReadDeadline(time.Time{})
		w.edge.all()[0].pool.sweep(time.Now().Add(time.Hour))
	}
	expect(t, w.edge.server.IdleTimeout, "30s") // after a request; origins close such connections too
	expect(t, w.edge.server.ReadTimeout, "0s")
}

func TestTheGuestsConnectionEndsWhereTheServersDoes(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.policy(inspected)
	w.answering("a.x", "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nConnection: close\r\n\r\nhello")
	guest := w.take("a.x", 80)
	io.WriteString(guest, "GET / HTTP/1.1\r\nHost: a.x\r\n\r\n")
	answer := upToEnd(t, guest)
	contains(t, answer, "hello")
	contains(t, answer, "Connection: close")
}
