package splice

import (
	"fmt"
	"net"
	"syscall"

	"golang.org/x/sys/unix"

	"atoll/relay/socket"
)

const usualPauseMS = 120_000

// End is one end of a connection: of TCP, or the way to the edge.
type End interface {
	net.Conn
	syscall.Conn
	CloseWrite() error
}

// end adds to an End what has to be asked of the kernel.
type end struct {
	End
	raw syscall.RawConn
}

func newEnd(of End) (*end, error) {
	raw, err := of.SyscallConn()
	if err != nil {
		return nil, fmt.Errorf("take over a connection: %w", err)
	}
	return &end{End: of, raw: raw}, nil
}

// ask calls a function with the descriptor. It is false when the end is closed.
func (e *end) ask(what func(fd int)) bool {
	return e.raw.Control(func(fd uintptr) { what(int(fd)) }) == nil
}

// events are those of poll(2) that are so now.
func (e *end) events(wanted int16) int16 {
	events := int16(unix.POLLERR)
	e.ask(func(fd int) { events = socket.Events(fd, wanted) })
	return events
}

// hasEnded tells whether the other side sends nothing more.
func hasEnded(fd int) bool { return socket.Events(fd, unix.POLLRDHUP) != 0 }

// hasFailed tells whether the kernel has given the end up.
func (e *end) hasFailed() bool { return e.events(0)&unix.POLLERR != 0 }

func (e *end) unread() int { return e.count(unix.TIOCINQ) }

// unacknowledged is how much was sent that the other side has not said it got. An end of stream counts as one.
func (e *end) unacknowledged() int { return e.count(unix.TIOCOUTQ) }

func (e *end) count(what uint) int {
	count := 0
	e.ask(func(fd int) {
		if got, err := unix.IoctlGetInt(fd, what); err == nil {
			count = got
		}
	})
	return count
}

// sentMilliseconds is how long ago data was sent there last.
func (e *end) sentMilliseconds() uint32 {
	var ago uint32
	e.ask(func(fd int) {
		if info, err := unix.GetsockoptTCPInfo(fd, unix.IPPROTO_TCP, unix.TCP_INFO); err == nil {
			ago = info.Last_data_sent
		}
	})
	return ago
}

// keepalive asks the other side whether it still knows the connection, or asks no more. The way to the edge has none.
func (e *end) keepalive(wanted bool, idle, interval int) {
	e.ask(func(fd int) {
		on := 0
		if wanted {
			on = 1
		}
		if unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_KEEPIDLE, idle) != nil {
			return
		}
		if interval > 0 {
			_ = unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_KEEPINTVL, interval)
		}
		_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_KEEPALIVE, on)
	})
}

// flush makes a close send what is left instead of a reset. The kernel gives up a closed connection once the pauses between
// its attempts are as long as they may be: so they are as long as usual.
func (e *end) flush() {
	e.ask(func(fd int) {
		_ = unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_RTO_MAX_MS, usualPauseMS)
		_ = unix.SetsockoptLinger(fd, unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{})
	})
}
