package channel

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"

	"golang.org/x/sys/unix"
)

const messageMost = 60 << 10

// Channel is a SOCK_SEQPACKET socket. Messages may be sent from any goroutine, and are received in one.
type Channel struct {
	socket *net.UnixConn
	mu     sync.Mutex
	buffer [messageMost + 1]byte
	ancil  [128]byte
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
	return &Channel{socket: unixSocket}, nil
}

// Close ends the channel.
func (c *Channel) Close() error { return c.socket.Close() }

// Send writes one message. It waits while the supervisor does not read.
func (c *Channel) Send(message any) error {
	text, err := json.Marshal(message)
	if err != nil {
		return err
	}
	if len(text) > messageMost {
		return fmt.Errorf("a message of %d bytes is too long", len(text))
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	_, err = c.socket.Write(text)
	return err
}

// Receive reads the next message and the descriptor with it, which is nil when there is none. io.EOF: the supervisor is
// gone.
func (c *Channel) Receive() (*Message, *os.File, error) {
	count, ancillary, flags, _, err := c.socket.ReadMsgUnix(c.buffer[:], c.ancil[:])
	if err != nil {
		return nil, nil, err
	}
	if count == 0 {
		return nil, nil, io.EOF
	}
	file, err := descriptor(c.ancil[:ancillary])
	if err != nil {
		return nil, nil, err
	}
	message := &Message{}
	if flags&(unix.MSG_TRUNC|unix.MSG_CTRUNC) != 0 {
		err = errors.New("a message of the supervisor is too long")
	} else if err = json.Unmarshal(c.buffer[:count], message); err != nil {
		err = fmt.Errorf("a message of the supervisor cannot be read: %w", err)
	}
	if err != nil && file != nil {
		file.Close()
	}
	return message, file, err
}

func descriptor(ancillary []byte) (*os.File, error) {
	if len(ancillary) == 0 {
		return nil, nil
	}
	controls, err := unix.ParseSocketControlMessage(ancillary)
	if err != nil {
		return nil, err
	}
	var all []int
	for i := range controls {
		if found, err := unix.ParseUnixRights(&controls[i]); err == nil {
			all = append(all, found...)
		}
	}
	if len(all) != 1 {
		for _, each := range all {
			unix.Close(each)
		}
		return nil, fmt.Errorf("a message came with %d descriptors", len(all))
	}
	return os.NewFile(uintptr(all[0]), "received"), nil
}

// Stream makes a connection of a received socket.
func Stream(file *os.File) (net.Conn, error) {
	if file == nil {
		return nil, errors.New("the message came without a socket")
	}
	defer file.Close()
	return net.FileConn(file)
}
