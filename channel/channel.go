// Package channel carries messages between processes of one home, with descriptors. What comes is bounded.
package channel

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"

	"golang.org/x/sys/unix"
)

const (
	messageMost = 60 << 10
	// FilesMost is how many descriptors come with one message at most.
	FilesMost = 4
)

// Channel is a SOCK_SEQPACKET socket. Messages may be sent from any goroutine, and are received in one.
type Channel struct {
	socket *net.UnixConn
	mu     sync.Mutex
	buffer [messageMost + 1]byte
	ancil  [256]byte
}

// Open takes the socket over.
func Open(file *os.File) (*Channel, error) {
	socket, err := net.FileConn(file)
	if closed := file.Close(); err == nil {
		err = closed
	}
	if err != nil {
		return nil, fmt.Errorf("the channel is not a socket: %w", err)
	}
	unixSocket, ok := socket.(*net.UnixConn)
	if !ok {
		return nil, errors.New("the channel is not a unix socket")
	}
	return New(unixSocket), nil
}

// New takes a socket over.
func New(socket *net.UnixConn) *Channel { return &Channel{socket: socket} }

// Close ends the channel.
func (c *Channel) Close() error { return c.socket.Close() }

// Send writes one message, and with it descriptors, which stay open here. It waits while the other side does not read.
func (c *Channel) Send(message any, files ...*os.File) error {
	text, err := written(message)
	if err != nil {
		return err
	}
	if len(text) > messageMost || len(files) > FilesMost {
		return fmt.Errorf("a message of %d bytes and %d descriptors is too long", len(text), len(files))
	}
	var rights []byte
	if len(files) > 0 {
		numbers, err := numbersOf(files)
		if err != nil {
			return err
		}
		rights = unix.UnixRights(numbers...)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	_, _, err = c.socket.WriteMsgUnix(text, rights, nil)
	return err
}

// written is a message as JSON. It is not for a page, so no character becomes six.
func written(message any) ([]byte, error) {
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(message); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(text.Bytes(), []byte("\n")), nil
}

// numbersOf does not ask Fd, which may have the other owners of a socket wait in the kernel.
func numbersOf(files []*os.File) ([]int, error) {
	numbers := make([]int, len(files))
	for i, file := range files {
		raw, err := file.SyscallConn()
		if err != nil {
			return nil, err
		}
		if err := raw.Control(func(fd uintptr) { numbers[i] = int(fd) }); err != nil {
			return nil, err
		}
	}
	return numbers, nil
}

// Receive reads the next message and the descriptors with it. io.EOF: the other side is gone.
func (c *Channel) Receive(into any) ([]*os.File, error) {
	count, ancillary, flags, _, err := c.socket.ReadMsgUnix(c.buffer[:], c.ancil[:])
	if err != nil {
		return nil, err
	}
	if count == 0 {
		return nil, io.EOF
	}
	files, err := received(c.ancil[:ancillary])
	switch {
	case err != nil:
	case flags&(unix.MSG_TRUNC|unix.MSG_CTRUNC) != 0:
		err = errors.New("a message is too long")
	default:
		if err = json.Unmarshal(c.buffer[:count], into); err != nil {
			err = fmt.Errorf("a message cannot be read: %w", err)
		}
	}
	if err != nil {
		CloseAll(files)
		return nil, err
	}
	return files, nil
}

func received(ancillary []byte) ([]*os.File, error) {
	if len(ancillary) == 0 {
		return nil, nil
	}
	controls, err := unix.ParseSocketControlMessage(ancillary)
	if err != nil {
		return nil, err
	}
	var files []*os.File
	for i := range controls {
		found, err := unix.ParseUnixRights(&controls[i])
		if err != nil {
			continue
		}
		for _, each := range found {
			files = append(files, os.NewFile(uintptr(each), "received"))
		}
	}
	if len(files) > FilesMost {
		CloseAll(files)
		return nil, fmt.Errorf("a message came with %d descriptors", len(files))
	}
	return files, nil
}

// CloseAll closes descriptors that nobody wants.
func CloseAll(files []*os.File) {
	for _, each := range files {
		each.Close()
	}
}

// Stream makes a connection of a received socket.
func Stream(file *os.File) (net.Conn, error) {
	if file == nil {
		return nil, errors.New("the message came without a socket")
	}
	defer file.Close()
	return net.FileConn(file)
}
