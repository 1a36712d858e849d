package main

import (
	"fmt"
	"net"
	"net/netip"
	"time"
)

const (
	refusalTimeout = time.Second
	refusalBody    = `{"code":"denied","message":"the agent answers the host, not programs inside"}`
)

var refusal = fmt.Appendf(nil,
	"HTTP/1.1 403 Forbidden\r\nContent-Type: application/json\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%s",
	len(refusalBody), refusalBody)

// hostOnly takes connections from the host alone.
//
// The agent does as root what it is asked. Were it to listen to programs inside, each of them would be root.
type hostOnly struct {
	net.Listener
	host netip.Addr
}

// Accept waits for the next connection from the host; all others are turned away.
func (l hostOnly) Accept() (net.Conn, error) {
	for {
		connection, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		if from(connection) == l.host {
			return connection, nil
		}
		refuse(connection)
	}
}

func from(connection net.Conn) netip.Addr {
	peer, _ := netip.ParseAddrPort(connection.RemoteAddr().String())
	return peer.Addr().Unmap()
}

// refuse says why, as far as that goes without waiting for anybody.
func refuse(connection net.Conn) {
	// All of it fits into a new connection's buffer; the caller may be gone.
	_ = connection.SetWriteDeadline(time.Now().Add(refusalTimeout))
	_, _ = connection.Write(refusal)
	_ = connection.Close()
}
