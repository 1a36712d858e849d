package atollapi

import (
	"io"
	"net"
	"net/http"
	"strconv"
	"sync"
	"time"

	"atoll/agent/fault"
)

const (
	loopbackTimeout = 5 * time.Second
	switched        = "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: tcp\r\n\r\n"
)

// Servers take one or the other for localhost.
var loopback = []string{"127.0.0.1", "::1"}

// loopback makes the request's connection one to a port of the loopback interface, which the host cannot reach.
//
// The host hands the connection to somebody who reads what the server sends. So nothing of that is sent before the host,
// which may read too much, has read the answer; it says so by a byte.
func (a *API) loopback(w http.ResponseWriter, r *http.Request) error {
	port, err := strconv.ParseUint(r.URL.Query().Get("port"), 10, 16)
	if err != nil || port == 0 {
		return fault.New(fault.Invalid, "give a port from 1 to 65535")
	}
	server, err := dialLoopback(strconv.FormatUint(port, 10))
	if err != nil {
		return fault.New(fault.Invalid, "nothing listens on port %d: %v", port, err)
	}
	defer server.Close()
	client, buffered, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return err
	}
	defer client.Close()
	if err := client.SetDeadline(time.Now().Add(loopbackTimeout)); err != nil {
		return nil
	}
	if _, err := io.WriteString(client, switched); err != nil {
		return nil
	}
	if _, err := buffered.ReadByte(); err != nil {
		return nil
	}
	if err := client.SetDeadline(time.Time{}); err != nil {
		return nil
	}
	join(client, buffered, server)
	return nil
}

func dialLoopback(port string) (server net.Conn, err error) {
	for _, address := range loopback {
		server, err = net.DialTimeout("tcp", net.JoinHostPort(address, port), loopbackTimeout)
		if err == nil {
			return server, nil
		}
	}
	return nil, err
}

// join passes on what both ends send, until both have ended or one is gone.
func join(client net.Conn, fromClient io.Reader, server net.Conn) {
	var both sync.WaitGroup
	for _, way := range []struct {
		to   net.Conn
		from io.Reader
	}{{server, fromClient}, {client, server}} {
		both.Go(func() {
			if _, err := io.Copy(way.to, way.from); err != nil {
				client.Close()
				server.Close()
				return
			}
			if half, ok := way.to.(interface{ CloseWrite() error }); ok {
				_ = half.CloseWrite()
			}
		})
	}
	both.Wait()
}
