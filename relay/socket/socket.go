// Package socket asks the kernel about sockets, and takes nothing from them.
package socket

import (
	"syscall"

	"golang.org/x/sys/unix"
)

// Events are those of poll(2) that are so now.
func Events(fd int, wanted int16) int16 {
	polled := []unix.PollFd{{Fd: int32(fd), Events: wanted}}
	if count, err := unix.Poll(polled, 0); err != nil || count <= 0 {
		return 0
	}
	return polled[0].Revents
}

// HasWaiting tells whether a connection waits in the kernel's queue of a listener.
func HasWaiting(listener syscall.Conn) bool {
	raw, err := listener.SyscallConn()
	if err != nil {
		return false
	}
	isWaiting := false
	err = raw.Control(func(fd uintptr) { isWaiting = Events(int(fd), unix.POLLIN) != 0 })
	return err == nil && isWaiting
}

// Peek reads what has come and leaves it there. It does not wait. Nothing and no error: the stream has ended.
func Peek(fd int, into []byte) (int, error) {
	for {
		count, _, err := unix.Recvfrom(fd, into, unix.MSG_PEEK|unix.MSG_DONTWAIT)
		if err != unix.EINTR {
			return count, err
		}
	}
}
