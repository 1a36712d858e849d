package serve

import (
	"bytes"
	"crypto/tls"
	"io"
	"net"
	"testing"
	"time"
)

// hello is what a client of TLS sends first.
func hello(f *testing.F, name string, protocols ...string) []byte {
	ours, theirs := net.Pipe()
	defer ours.Close()
	defer theirs.Close()
	go tls.Client(theirs, &tls.Config{ServerName: name, InsecureSkipVerify: true, NextProtos: protocols}).Handshake()
	first := make([]byte, 4<<10)
	count, err := ours.Read(first)
	must(f, err)
	return first[:count]
}

// FuzzConnection has an edge take whatever a guest may send, where requests and other protocols are allowed. Of requests
// only those for the name of the connection may arrive, and no handshake for another name.
func FuzzConnection(f *testing.F) {
	w := newWorld(f)
	w.policy(`{"action":"allow","methods":["GET"],"paths":["/ok"]}`, allow)
	arrived := make(chan []byte, 64)
	w.raw("a.x", func(conn net.Conn) {
		conn.SetReadDeadline(time.Now().Add(5 * time.Second))
		io.WriteString(conn, "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 0\r\n\r\n")
		got, _ := io.ReadAll(conn)
		arrived <- got
	})
	for _, seed := range [][]byte{
		hello(f, "a.x"), hello(f, "b.x"), hello(f, "b.x", "own"), hello(f, "a.x", "own"), hello(f, "", "own"),
		[]byte("GET /ok HTTP/1.1\r\nHost: a.x\r\n\r\n"), []byte("GET //b.x/ HTTP/1.1\r\nHost: a.x\r\n\r\n"),
		[]byte("GET /ok HTTP/1.1\r\nHost: b.x\r\n\r\n"), []byte("\r\nGET /ok http/1.1 \r\nHost: b.x\r\n\r\n"),
		[]byte("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00"), []byte("EHLO a\r\n"), {0}, {0x16, 3, 1, 0, 1, 1},
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		if len(data) == 0 || len(data) > 16<<10 {
			return
		}
		w.mu.Lock()
		w.t = t
		w.mu.Unlock()
		conn := w.take("a.x", 443)
		if _, err := conn.Write(data); err == nil {
			conn.(interface{ CloseWrite() error }).CloseWrite()
		}
		conn.SetReadDeadline(time.Now().Add(10 * time.Second))
		io.Copy(io.Discard, conn)
		conn.Close()
		for {
			select {
			case got := <-arrived:
				if bytes.Contains(got, []byte("Host: b.x")) && Sniff(got) == HTTP || bytes.HasPrefix(got, []byte{0x16, 3}) && bytes.Contains(got, []byte("b.x")) {
					t.Errorf("of %q there arrived %q", data, got)
				}
				continue
			default:
			}
			break
		}
	})
}
