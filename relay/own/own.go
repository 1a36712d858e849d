// Package own tells which addresses are this host's own.
package own

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"atoll/policy"
)

const (
	headBytes      = unix.SizeofNlMsghdr
	routeBytes     = unix.SizeofRtMsg
	attributeBytes = unix.SizeofRtAttr
	routeKindAt    = 7 // in struct rtmsg
	answerMost     = 4096
	patience       = time.Second
)

// Kernel asks the kernel for its routes, in the network namespace in which it was opened. It is safe for concurrent use.
type Kernel struct {
	mu     sync.Mutex
	socket int
	last   uint32
	answer [answerMost]byte
}

// Open opens the way to the kernel. It is done before the process gives up its rights; asking needs only to send and to
// receive.
func Open() (*Kernel, error) {
	socket, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_ROUTE)
	if err != nil {
		return nil, fmt.Errorf("open a socket for routes: %w", err)
	}
	// The kernel answers before the question has returned. This only keeps a fault of it from stopping everything.
	wait := unix.NsecToTimeval(int64(patience))
	if err := errors.Join(
		unix.Bind(socket, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}),
		unix.SetsockoptTimeval(socket, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &wait),
	); err != nil {
		unix.Close(socket)
		return nil, fmt.Errorf("prepare a socket for routes: %w", err)
	}
	return &Kernel{socket: socket}, nil
}

// Close ends it. Nobody may ask any more.
func (k *Kernel) Close() error {
	k.mu.Lock()
	defer k.mu.Unlock()
	socket := k.socket
	k.socket = -1
	return unix.Close(socket)
}

// Has tells whether a connection to an address, or to the IPv4 address that it carries, ends at this host: the kernel's routes
// of this moment say so. No error has the address, since who asks for a name is not told where it leads.
//
// So this includes each address of each interface, and what is routed to this host besides. A connection from outside to such
// an address passes the firewall in front of the host; one from here would not. Whoever gets an error must not connect.
func (k *Kernel) Has(address netip.Addr) (bool, error) {
	address = policy.Plain(address)
	switch {
	case !address.IsValid():
		return false, errors.New("there is no address")
	case address.Zone() != "":
		return false, errors.New("the address has a zone, which means something on one interface only")
	case address.IsUnspecified(): // a connection there leads to the loopback interface
		return true, nil
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.last++
	if err := unix.Sendto(k.socket, question(address, k.last), 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return false, fmt.Errorf("ask for a route: %w", err)
	}
	kind, err := k.receive()
	if err != nil {
		return false, fmt.Errorf("read a route: %w", err)
	}
	return kind == unix.RTN_LOCAL || kind == unix.RTN_ANYCAST, nil
}

// question asks for the route to an address.
func question(address netip.Addr, number uint32) []byte {
	bytes := address.AsSlice()
	family := byte(unix.AF_INET6)
	if address.Is4() {
		family = unix.AF_INET
	}
	order := binary.NativeEndian
	size := headBytes + routeBytes + attributeBytes + len(bytes)
	message := make([]byte, 0, size)
	message = order.AppendUint32(message, uint32(size))
	message = order.AppendUint16(message, unix.RTM_GETROUTE)
	message = order.AppendUint16(message, unix.NLM_F_REQUEST)
	message = order.AppendUint32(message, number)
	message = order.AppendUint32(message, 0)
	message = append(message, family, byte(address.BitLen()))
	message = append(message, make([]byte, routeBytes-2)...)
	message = order.AppendUint16(message, uint16(attributeBytes+len(bytes)))
	message = order.AppendUint16(message, unix.RTA_DST)
	return append(message, bytes...)
}

// receive reads the answer to the last question, and says what kind of route it is.
func (k *Kernel) receive() (byte, error) {
	for {
		count, from, err := unix.Recvfrom(k.socket, k.answer[:], 0)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return 0, err
		}
		sender, ok := from.(*unix.SockaddrNetlink)
		message := k.answer[:count]
		// A late answer to an earlier question is none to this one, and only the kernel is believed.
		if !ok || sender.Pid != 0 || count < headBytes || binary.NativeEndian.Uint32(message[8:]) != k.last {
			continue
		}
		return route(message)
	}
}

var errShort = errors.New("the kernel's answer is too short")

// route reads an answer.
func route(message []byte) (byte, error) {
	body := message[headBytes:]
	switch kind := binary.NativeEndian.Uint16(message[4:]); kind {
	case unix.NLMSG_ERROR:
		if len(body) < 4 {
			return 0, errShort
		}
		return none(unix.Errno(-int32(binary.NativeEndian.Uint32(body))))
	case unix.RTM_NEWROUTE:
		if len(body) < routeBytes {
			return 0, errShort
		}
		return body[routeKindAt], nil
	default:
		return 0, fmt.Errorf("the kernel answers with a message of kind %d", kind)
	}
}

// none is the kind of route where nothing leads: there is none, a route forbids it, or the kernel has no such addresses.
func none(why unix.Errno) (byte, error) {
	switch why {
	case unix.ENETUNREACH, unix.EHOSTUNREACH, unix.EACCES, unix.EINVAL, unix.EAGAIN, unix.ENETDOWN, unix.ENODEV,
		unix.EAFNOSUPPORT, unix.EOPNOTSUPP, unix.EADDRNOTAVAIL:
		return unix.RTN_UNREACHABLE, nil
	}
	return 0, why
}
