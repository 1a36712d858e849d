package splice

import (
	"sync"

	"golang.org/x/sys/unix"
)

const (
	pieceBytes = 256 << 10
	pipesKept  = 16
)

// pipe carries a piece from one socket to another inside the kernel. A pump has one only while it moves something.
type pipe struct {
	read, write int
	// The kernel gives less than a piece to a user who has many pipes.
	capacity int
}

var free struct {
	mu    sync.Mutex
	pipes []*pipe
}

func takePipe() (*pipe, error) {
	free.mu.Lock()
	if last := len(free.pipes) - 1; last >= 0 {
		taken := free.pipes[last]
		free.pipes = free.pipes[:last]
		free.mu.Unlock()
		return taken, nil
	}
	free.mu.Unlock()
	var ends [2]int
	if err := unix.Pipe2(ends[:], unix.O_CLOEXEC|unix.O_NONBLOCK); err != nil {
		return nil, err
	}
	made := &pipe{read: ends[0], write: ends[1]}
	capacity, err := unix.FcntlInt(uintptr(made.write), unix.F_SETPIPE_SZ, pieceBytes)
	if err != nil {
		if capacity, err = unix.FcntlInt(uintptr(made.write), unix.F_GETPIPE_SZ, 0); err != nil {
			made.close()
			return nil, err
		}
	}
	made.capacity = capacity
	return made, nil
}

// give keeps an empty pipe for the next piece.
func (p *pipe) give() {
	free.mu.Lock()
	defer free.mu.Unlock()
	if len(free.pipes) < pipesKept {
		free.pipes = append(free.pipes, p)
		return
	}
	p.close()
}

func (p *pipe) close() {
	unix.Close(p.read)
	unix.Close(p.write)
}
