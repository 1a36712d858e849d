package upstream

import (
	"bytes"
	"io"
	"net"

	"golang.org/x/sys/unix"

	"atoll/relay/socket"
)

const peekedBytes = 4096

// line is a wire over a connection. It peeks at data without a length, and takes no byte beyond it.
type line struct{ conn *net.TCPConn }

func (l line) send(data []byte) error {
	_, err := l.conn.Write(data)
	return err
}

func (l line) exactly(count int) ([]byte, error) {
	data := make([]byte, count)
	_, err := io.ReadFull(l.conn, data)
	return data, err
}

func (l line) until(end string, most int) ([]byte, error) {
	var data []byte
	piece := make([]byte, peekedBytes)
	for !bytes.HasSuffix(data, []byte(end)) {
		if len(data) >= most {
			return nil, errTooLong
		}
		count, err := l.peek(piece[:min(len(piece), most-len(data))])
		if err != nil {
			return nil, err
		}
		// The end may have begun in an earlier piece.
		from := max(0, len(data)-len(end)+1)
		begun := append(data[from:len(data):len(data)], piece[:count]...)
		if at := bytes.Index(begun, []byte(end)); at >= 0 {
			count = from + at + len(end) - len(data)
		}
		taken, err := l.exactly(count)
		if err != nil {
			return nil, err
		}
		data = append(data, taken...)
	}
	return data, nil
}

// peek waits for bytes and leaves them in the socket.
func (l line) peek(into []byte) (int, error) {
	raw, err := l.conn.SyscallConn()
	if err != nil {
		return 0, err
	}
	count := 0
	var failed error
	err = raw.Read(func(fd uintptr) bool {
		count, failed = socket.Peek(int(fd), into)
		return failed != unix.EAGAIN
	})
	switch {
	case err != nil:
		return 0, err
	case failed != nil:
		return 0, failed
	case count == 0:
		return 0, io.EOF
	}
	return count, nil
}
