package dial

import (
	"math"
	"syscall"

	"golang.org/x/sys/unix"
)

const longestPauseMS = 1000

// Tune prepares an end of a connection: no delay, no timeout, and a reset when this process dies or closes it.
//
// A suspended guest answers nothing for days and then continues. Until then the kernel retransmits what is not acknowledged.
// Where it can (Linux 6.15) it does so every second, so that it soon notices the waking.
func Tune(raw syscall.RawConn) error {
	var failed error
	if err := raw.Control(func(fd uintptr) { failed = tune(int(fd)) }); err != nil {
		return err
	}
	return failed
}

func tune(fd int) error {
	if err := unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_NODELAY, 1); err != nil {
		return err
	}
	if err := unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, math.MaxInt32); err != nil {
		return err
	}
	if err := unix.SetsockoptLinger(fd, unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1}); err != nil {
		return err
	}
	// Only an older kernel refuses, and then pauses grow up to two minutes.
	_ = unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_RTO_MAX_MS, longestPauseMS)
	return nil
}
