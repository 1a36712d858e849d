package home

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"syscall"

	"golang.org/x/sys/unix"

	"atoll/channel"
)

// sockets are what a link is made of: they lie in the outer namespace of a sandbox, and this process can make none there.
type sockets struct {
	guests    *net.TCPListener
	questions *net.UDPConn
	streams   *net.TCPListener
	names     *os.File
}

const linkFiles = 4

// socketsOf makes them of the descriptors of a message, in this order. It owns those, also if it fails.
func socketsOf(files []*os.File) (*sockets, error) {
	if len(files) != linkFiles {
		channel.CloseAll(files)
		return nil, fmt.Errorf("a link came with %d descriptors", len(files))
	}
	made := &sockets{names: files[3]}
	defer channel.CloseAll(files[:3]) // the sockets are made of copies
	var faults [3]error
	made.guests, faults[0] = listener(files[0])
	made.questions, faults[1] = datagrams(files[1])
	made.streams, faults[2] = listener(files[2])
	if err := errors.Join(faults[:]...); err != nil {
		made.close()
		made.names.Close()
		return nil, err
	}
	return made, nil
}

// copies are further descriptors of the sockets, in the order in which they came. The caller closes them.
func (s *sockets) copies() ([]*os.File, error) {
	var files []*os.File
	for _, each := range []syscall.Conn{s.guests, s.questions, s.streams} {
		raw, err := each.SyscallConn()
		if err != nil {
			return files, err
		}
		var copied int
		var failed error
		err = raw.Control(func(fd uintptr) { copied, failed = unix.FcntlInt(fd, unix.F_DUPFD_CLOEXEC, 0) })
		if err = errors.Join(err, failed); err != nil {
			return files, err
		}
		files = append(files, os.NewFile(uintptr(copied), "copy"))
	}
	return files, nil
}

// close closes all but the file of names, which its table owns.
func (s *sockets) close() {
	if s.guests != nil {
		s.guests.Close()
	}
	if s.questions != nil {
		s.questions.Close()
	}
	if s.streams != nil {
		s.streams.Close()
	}
}

// listener refuses a socket that only looks like one: accepting would fail for ever.
func listener(file *os.File) (*net.TCPListener, error) {
	isListening, err := unix.GetsockoptInt(int(file.Fd()), unix.SOL_SOCKET, unix.SO_ACCEPTCONN)
	if err != nil || isListening == 0 {
		return nil, errors.New("a descriptor of a link is no listener")
	}
	made, err := net.FileListener(file)
	if err != nil {
		return nil, fmt.Errorf("a descriptor of a link is no listener: %w", err)
	}
	return kind[*net.TCPListener](made)
}

func datagrams(file *os.File) (*net.UDPConn, error) {
	made, err := net.FilePacketConn(file)
	if err != nil {
		return nil, fmt.Errorf("a descriptor of a link is no socket for datagrams: %w", err)
	}
	return kind[*net.UDPConn](made)
}

func kind[T io.Closer](made io.Closer) (T, error) {
	found, ok := made.(T)
	if !ok {
		made.Close()
		return found, errors.New("a descriptor of a link is a socket of another kind")
	}
	return found, nil
}

// one is the only descriptor of a message.
func one(files []*os.File) (*os.File, error) {
	if len(files) != 1 {
		channel.CloseAll(files)
		return nil, fmt.Errorf("a message that needs one descriptor came with %d", len(files))
	}
	return files[0], nil
}
