package resolve

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"time"

	"github.com/miekg/dns"
	"golang.org/x/sys/unix"
)

// Network is how a nameserver is asked.
type Network string

// The networks.
const (
	Datagram Network = "udp"
	Stream   Network = "tcp"
)

const (
	rounds        = 2
	serverTimeout = 2500 * time.Millisecond
	timeout       = 10 * time.Second
)

var errNobody = errors.New("there is no nameserver to ask")

// Client asks the host's nameservers. It is safe for concurrent use.
type Client struct {
	// Nameservers gives those to ask, in this order. It is called for each question.
	Nameservers func() []netip.AddrPort
}

// Exchange asks the nameservers in turn, twice, until one answers. It gives the first answer, which may be truncated, with the
// id of the query. A refusal is given only if no other one answers. It takes 10 s at most.
//
// Whoever made the query has no influence on the id with which it is asked, nor on the port.
func (c *Client) Exchange(ctx context.Context, query []byte, by Network) ([]byte, error) {
	if Question(query) == nil {
		return nil, errors.New("it is not a question")
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	hidden := bytes.Clone(query)
	var unwilling []byte
	failure, servers := errNobody, c.Nameservers()
	for range rounds {
		for _, server := range servers {
			if ctx.Err() != nil {
				break
			}
			rand.Read(hidden[:2])
			reply, err := ask(ctx, hidden, server, by)
			if err != nil {
				failure = err
				continue
			}
			copy(reply, query[:2])
			if !isUnwilling(reply) {
				return reply, nil
			}
			unwilling = reply
		}
	}
	if unwilling == nil {
		return nil, fmt.Errorf("no nameserver answers: %w", failure)
	}
	return unwilling, nil
}

// ask asks one nameserver.
func ask(ctx context.Context, query []byte, server netip.AddrPort, by Network) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, serverTimeout)
	defer cancel()
	socket, err := new(net.Dialer).DialContext(ctx, string(by), server.String())
	if err != nil {
		return nil, err
	}
	defer socket.Close()
	defer context.AfterFunc(ctx, func() { socket.SetDeadline(time.Unix(1, 0)) })()
	connection := &dns.Conn{Conn: socket} // it puts the length before a message on a stream
	if _, err := connection.Write(query); err != nil {
		return nil, err
	}
	if datagrams, ok := socket.(*net.UDPConn); ok {
		return awaited(datagrams, query)
	}
	reply, err := connection.ReadMsgHeader(nil)
	if err == nil && !answers(query, reply) {
		err = fmt.Errorf("%s answered a different question", server)
	}
	return reply, err
}

// awaited is the answer to a query. Anybody may send datagrams that are none.
func awaited(socket *net.UDPConn, query []byte) ([]byte, error) {
	for {
		reply, err := receive(socket)
		if err != nil || answers(query, reply) {
			return reply, err
		}
	}
}

var buffers = sync.Pool{New: func() any { return new([dns.MaxMsgSize]byte) }}

// receive waits for a datagram without a buffer for it: many questions may wait at once.
func receive(socket *net.UDPConn) ([]byte, error) {
	raw, err := socket.SyscallConn()
	if err != nil {
		return nil, err
	}
	var datagram []byte
	var fault error
	err = raw.Read(func(fd uintptr) bool {
		buffer := buffers.Get().(*[dns.MaxMsgSize]byte)
		defer buffers.Put(buffer)
		var count int
		count, fault = unix.Read(int(fd), buffer[:])
		if errors.Is(fault, unix.EAGAIN) || errors.Is(fault, unix.EINTR) {
			return false
		}
		datagram = bytes.Clone(buffer[:max(0, count)])
		return true
	})
	return datagram, errors.Join(err, fault)
}
