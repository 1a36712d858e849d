package guest

import (
	"net"
	"strconv"

	"golang.org/x/sys/unix"

	"atoll/policy"
	"atoll/relay/splice"
)

// lookInto tells what becomes of a connection to a name that begins like this.
func lookInto(first []byte, name string) splice.Look {
	begins := policy.ReadFirstBytes(first)
	if begins.Kind == policy.BeginsUnclear {
		return splice.Look{Wanted: begins.Wanted, IsLine: begins.SendOn}
	}
	switch begins.Passage(name) {
	case policy.PassOn:
		return splice.Look{Passage: splice.Pass}
	case policy.LookInto:
		return splice.Look{Passage: splice.Inspect}
	}
	return splice.Look{Passage: splice.Refuse}
}

func joinHostPort(to Destination) string { return to.Host() + ":" + strconv.Itoa(to.Port) }

// hasWaiting tells whether a connection waits in the kernel's queue.
func hasWaiting(listener *net.TCPListener) bool {
	raw, err := listener.SyscallConn()
	if err != nil {
		return false
	}
	isWaiting := false
	_ = raw.Control(func(fd uintptr) {
		polled := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
		count, err := unix.Poll(polled, 0)
		isWaiting = err == nil && count > 0
	})
	return isWaiting
}
