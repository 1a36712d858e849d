package channel

import (
	"errors"
	"fmt"
	"net"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// When descriptors or memory are short, who connects is tried again a little later.
const shortage = 250 * time.Millisecond

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

// Accept is the next one who connects. It waits for that, also while descriptors or memory are short.
func Accept(listener *net.UnixListener) (*net.UnixConn, error) {
	for {
		conn, err := listener.AcceptUnix()
		switch {
		case errors.Is(err, unix.EMFILE), errors.Is(err, unix.ENFILE), errors.Is(err, unix.ENOMEM),
			errors.Is(err, unix.ENOBUFS), errors.Is(err, unix.ECONNABORTED):
			time.Sleep(shortage)
		default:
			return conn, err
		}
	}
}

// MayTalk refuses who has connected, unless it is a user or root. The error calls what they connected to by its name.
func MayTalk(conn *net.UnixConn, user int, name string) error {
	found, err := userOf(conn)
	if err == nil && found != 0 && found != user {
		err = fmt.Errorf("user %d may not talk to the %s: %w", found, name, syscall.EPERM)
	}
	return err
}

func userOf(conn *net.UnixConn) (int, error) {
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
