package channel

import (
	"errors"
	"fmt"
	"net"
	"os"

	"golang.org/x/sys/unix"
)

// Listener is the SOCK_SEQPACKET socket of an inherited descriptor, on which others may connect.
func Listener(fd int) (*net.UnixListener, error) {
	file := os.NewFile(uintptr(fd), "listener")
	if file == nil {
		return nil, fmt.Errorf("%d is no descriptor", fd)
	}
	defer file.Close()
	made, err := net.FileListener(file)
	if err != nil {
		return nil, fmt.Errorf("descriptor %d is no listener: %w", fd, err)
	}
	listener, ok := made.(*net.UnixListener)
	if !ok || listener.Addr().Network() != "unixpacket" {
		return nil, errors.New("the listener is not a SOCK_SEQPACKET unix socket")
	}
	return listener, nil
}

// UserOf is the user who has connected.
func UserOf(conn *net.UnixConn) (int, error) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return 0, err
	}
	var credentials *unix.Ucred
	var failed error
	if err = raw.Control(func(fd uintptr) {
		credentials, failed = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	}); err == nil {
		err = failed
	}
	if err != nil {
		return 0, fmt.Errorf("ask who has connected: %w", err)
	}
	return int(credentials.Uid), nil
}
