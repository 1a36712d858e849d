package serve

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// Requests of which a part is still to come when they are answered or cut.

const (
	getAndPost = `{"action":"allow","methods":["GET","POST"]}`
	getOnly    = `{"action":"allow","methods":["GET"]}`
)

var lengths = []string{"Content-Length: 40", "Transfer-Encoding: chunked"}

// upToEnd reads until the connection ends.
func upToEnd(t testing.TB, conn net.Conn) string {
	t.Helper()
	conn.SetReadDeadline(time.Now().Add(20 * time.Second))
	text, err := io.ReadAll(conn)
	if err != nil && !errors.Is(err, syscall.ECONNRESET) { // a guest that is slow to send the rest
		t.Fatalf("the connection does not end well: %v, after %.100q", err, text)
	}
	return string(text)
}

// answering is a server that reads the head of each request and says a text.
func (w *world) answering(name, text string) {
	w.raw(name, func(conn net.Conn) {
		reader := bufio.NewReader(conn)
		for line := ""; line != "\r\n"; {
			var err error
			if line, err = reader.ReadString('\n'); err != nil {
				return
			}
		}
		io.WriteString(conn, text)
		time.Sleep(20 * time.Millisecond)
	})
}

// waiting is a server that answers nothing. It says when a request has come.
func waiting() (http.HandlerFunc, *atomic.Bool) {
	var began atomic.Bool
	return func(_ http.ResponseWriter, request *http.Request) {
		began.Store(true)
		io.Copy(io.Discard, request.Body)
		<-request.Context().Done()
	}, &began
}

func (w *world) forbidPost() {
	w.policy(getOnly)
	w.sendRules(0)
}

func TestTheRestOfARequestThatIsCutIsNotTheNextRequest(t *testing.T) {
	t.Parallel()
	for _, length := range lengths {
		w := newWorld(t)
		w.policy(getAndPost)
		arrived := &recorder{}
		var began atomic.Bool
		w.server("a.x", func(writer http.ResponseWriter, request *http.Request) {
			began.Store(true)
			arrived.ServeHTTP(writer, request)
		})
		guest := w.take("a.x", 80)
		_, err := io.WriteString(guest, "POST / HTTP/1.1\r\nHost: a.x\r\n"+length+"\r\n\r\n")
		must(t, err)
		eventually(t, "the request arrives", began.Load)
		w.forbidPost()
		got := make([]byte, len("HTTP/1.1 403"))
		_, err = io.ReadFull(guest, got)
		must(t, err)
		io.WriteString(guest, "GET /hidden HTTP/1.1\r\nHost: a.x\r\n\r\n")
		answer := string(got) + upToEnd(t, guest)
		contains(t, answer, "HTTP/1.1 403")
		contains(t, answer, "Connection: close")
		expect(t, strings.Count(answer, "HTTP/1.1"), 1)
		expect(t, strings.Contains(arrived.all(), "hidden"), false)
	}
}

func TestARequestWithoutABodyThatIsCutIsTheLastOfItsConnection(t *testing.T) {
	t.Parallel()
	for _, method := range []string{"HEAD", "POST"} {
		w := newWorld(t)
		w.policy(`{"action":"allow","methods":["HEAD","POST"]}`)
		handler, began := waiting()
		w.server("a.x", handler)
		guest := w.take("a.x", 80)
		_, err := io.WriteString(guest, method+" / HTTP/1.1\r\nHost: a.x\r\n\r\n")
		must(t, err)
		eventually(t, "the request arrives", began.Load)
		w.forbidPost()
		answer := upToEnd(t, guest)
		contains(t, answer, "HTTP/1.1 403")
		contains(t, answer, "Connection: close")
	}
}

func TestTheRestOfARequestThatIsAnsweredEarlyIsNotTheNextRequest(t *testing.T) {
	t.Parallel()
	const hidden = "GET /hidden HTTP/1.1\r\nHost: a.x\r\n\r\n"
	for name, c := range map[string]struct{ sent, rest string }{
		"chunked":   {"POST / HTTP/1.1\r\nHost: a.x\r\nTransfer-Encoding: chunked\r\n\r\n23\r\n", hidden + "\r\n0\r\n\r\n"},
		"length":    {"POST / HTTP/1.1\r\nHost: a.x\r\nContent-Length: 35\r\n\r\n", hidden},
		"malformed": {"POST / HTTP/1.1\r\nHost: a.x\r\nTransfer-Encoding: chunked\r\n\r\nZZ\r\n", hidden},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.policy(getAndPost)
			w.answering("a.x", "HTTP/1.1 413 Too Large\r\nContent-Length: 2\r\n\r\nno")
			guest := w.take("a.x", 80)
			_, err := io.WriteString(guest, c.sent)
			must(t, err)
			got := make([]byte, len("HTTP/1.1 "))
			_, err = io.ReadFull(guest, got)
			must(t, err)
			io.WriteString(guest, c.rest)
			answer := string(got) + upToEnd(t, guest)
			contains(t, answer, "Connection: close")
			expect(t, strings.Count(answer, "HTTP/1.1"), 1)
			expect(t, w.dialled(), 1)
		})
	}
}

func TestAResponseThatBreaksOffWaitsForNoBody(t *testing.T) {
	t.Parallel()
	for _, length := range lengths {
		w := newWorld(t)
		w.policy(getAndPost)
		w.answering("a.x", "HTTP/1.1 200 OK\r\nContent-Length: 20\r\n\r\nhalf")
		for range 10 {
			guest := w.take("a.x", 80)
			_, err := io.WriteString(guest, "POST / HTTP/1.1\r\nHost: a.x\r\n"+length+"\r\n\r\n")
			must(t, err)
			upToEnd(t, guest)
			guest.Close()
		}
	}
}

func TestAGuestThatIsStillSendingReadsWhyItIsCut(t *testing.T) {
	t.Parallel()
	piece := strings.Repeat("a", 1000)
	for length, each := range map[string]string{
		"Content-Length: 10000000":   piece,
		"Transfer-Encoding: chunked": "3e8\r\n" + piece + "\r\n",
	} {
		for range 5 {
			w := newWorld(t)
			w.policy(getAndPost)
			handler, began := waiting()
			w.server("a.x", handler)
			guest := w.take("a.x", 80)
			_, err := io.WriteString(guest, "POST / HTTP/1.1\r\nHost: a.x\r\n"+length+"\r\n\r\n")
			must(t, err)
			eventually(t, "the request arrives", began.Load)
			go func() {
				for err := error(nil); err == nil; time.Sleep(100 * time.Microsecond) {
					_, err = io.WriteString(guest, each)
				}
			}()
			time.Sleep(2 * time.Millisecond)
			w.forbidPost()
			// Like an HTTP client: it reads one response, and closes.
			response, err := http.ReadResponse(bufio.NewReader(guest), nil)
			must(t, err)
			_, err = io.ReadAll(response.Body)
			must(t, err)
			expect(t, response.StatusCode, 403)
			guest.Close()
		}
	}
}

func TestARequestToAServerOfHTTP2ThatIsCutWaitsForNoBody(t *testing.T) {
	t.Parallel()
	for _, length := range lengths {
		w := newWorld(t)
		w.policy(getAndPost)
		handler, began := waiting()
		w.secure("a.x", true, handler)
		for range 5 {
			w.policy(getAndPost)
			began.Store(false)
			guest := tls.Client(w.take("a.x", 443), &tls.Config{RootCAs: w.trust, ServerName: "a.x", NextProtos: []string{"http/1.1"}})
			_, err := io.WriteString(guest, "POST / HTTP/1.1\r\nHost: a.x\r\n"+length+"\r\n\r\n")
			must(t, err)
			eventually(t, "the request arrives", began.Load)
			w.forbidPost()
			contains(t, upToEnd(t, guest), "HTTP/1.1 403")
			guest.Close()
		}
	}
}

func TestAConnectionStaysOpenAfterWholeRequests(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.policyWith(dict{"canaries": []string{"CANARY-0001"}}, allow) // bodies of a known length are held
	w.server("a.x", func(writer http.ResponseWriter, request *http.Request) {
		body, _ := io.ReadAll(request.Body)
		fmt.Fprintf(writer, "%s %d", request.Method, len(body))
	})
	guest := w.take("a.x", 80)
	reader := bufio.NewReader(guest)
	guest.SetDeadline(time.Now().Add(20 * time.Second))
	big := strings.Repeat("x", 300_000)
	for range 3 {
		for _, c := range []struct{ head, body, method string }{
			{"Content-Length: 5", "hello", "POST"},
			{"Content-Length: 300000", big, "POST"},
			{"Content-Length: 0", "", "POST"},
			{"Transfer-Encoding: chunked", "5\r\nhello\r\n0\r\n\r\n", "PUT"},
			{"Transfer-Encoding: chunked", "493e0\r\n" + big + "\r\n0\r\n\r\n", "POST"},
			{"X: y", "", "GET"},
			{"X: y", "", "HEAD"},
		} {
			_, err := io.WriteString(guest, c.method+" / HTTP/1.1\r\nHost: a.x\r\n"+c.head+"\r\n\r\n"+c.body)
			must(t, err)
			response, err := http.ReadResponse(reader, &http.Request{Method: c.method})
			must(t, err)
			_, err = io.ReadAll(response.Body)
			must(t, err)
			if response.StatusCode != 200 || response.Close {
				t.Fatalf("%s with %s: %d, closes %v", c.method, c.head, response.StatusCode, response.Close)
			}
		}
	}
}

func TestARefusedUploadOfHTTP2EndsWithItsAnswerAndIsNotReset(t *testing.T) {
	t.Parallel()
	const data, headers, reset, settings, ping, endStream, endHeaders, ack = 0, 1, 3, 4, 6, 1, 4, 1
	w := newWorld(t)
	w.policy(getOnly)
	guest := w.take("a.x", 80)
	defer guest.Close()
	guest.SetDeadline(time.Now().Add(20 * time.Second))
	send := func(pieces ...[]byte) {
		_, err := guest.Write(bytes.Join(pieces, nil))
		must(t, err)
	}
	head := literal(":method", "POST", ":scheme", "http", ":path", "/", ":authority", "a.x")
	send([]byte("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"), frame(settings, 0, 0, nil),
		frame(headers, endHeaders, 1, head), frame(data, 0, 1, []byte("begun")))
	for answer, isSent := "", false; ; {
		head := make([]byte, 9)
		_, err := io.ReadFull(guest, head)
		must(t, err)
		payload := make([]byte, binary.BigEndian.Uint32(head)>>8)
		_, err = io.ReadFull(guest, payload)
		must(t, err)
		switch kind, flags := head[3], head[4]; {
		case kind == reset:
			t.Fatalf("the stream is reset: %x", payload)
		case kind == ping && flags == ack:
			contains(t, answer, "egress_denied")
			return
		case kind == data && flags&endStream != 0:
			answer += string(payload)
			send(frame(ping, 0, 0, make([]byte, 8))) // what answers it comes behind a reset
		case kind == data:
			if answer += string(payload); strings.HasSuffix(answer, "}\n") && !isSent {
				isSent = true
				send(frame(data, endStream, 1, []byte("the rest")))
			}
		}
	}
}
