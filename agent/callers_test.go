package main

import (
	"io"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"testing"
	"time"
)

// answer is what a caller from that address reads, who says nothing before it has read.
func answer(t *testing.T, from, to, question string) string {
	t.Helper()
	dialer := &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}, Timeout: time.Minute}
	connection, err := dialer.Dial("tcp", to)
	if err != nil {
		t.Fatal(err)
	}
	defer connection.Close()
	if _, err := io.WriteString(connection, question); err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(connection)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestOnlyTheHostIsAnswered(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "welcome")
	})}
	go server.Serve(hostOnly{listener, netip.MustParseAddr("127.0.0.2")})
	defer server.Close()
	address := listener.Addr().String()
	text := answer(t, "127.0.0.2", address, "GET / HTTP/1.1\r\nHost: atoll\r\nConnection: close\r\n\r\n")
	if !strings.HasSuffix(text, "welcome") {
		t.Fatal(text)
	}
	for _, insider := range []string{"127.0.0.1", "127.0.0.3"} {
		if text := answer(t, insider, address, ""); !strings.HasPrefix(text, "HTTP/1.1 403 ") {
			t.Fatal(insider, text)
		}
	}
}
