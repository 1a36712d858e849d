package process

import (
	"errors"
	"os"
	"syscall"
	"time"

	"atoll/agent/frames"
)

const (
	// mostInFlight bounds what can lie in a pipe at the moment when its process ends.
	mostInFlight = 1 << 20
	// terminalGrace is how long a terminal may stay silent before its output counts as complete:
	// the kernel moves bytes from one end to the other in the background.
	terminalGrace = 50 * time.Millisecond
)

// output pumps one pipe or terminal of a process into its log.
type output struct {
	file    *os.File
	kind    byte
	log     *Log
	settled chan struct{} // closed when everything that the process itself wrote is in the log
}

func startOutput(file *os.File, kind byte, log *Log) *output {
	o := &output{file: file, kind: kind, log: log, settled: make(chan struct{})}
	go o.pump()
	return o
}

// settle takes what the ended process left in the pipe and returns when that is in the log.
func (o *output) settle() {
	grace := time.Time{}.Add(time.Nanosecond)
	if o.kind == frames.Terminal {
		grace = time.Now().Add(terminalGrace)
	}
	// A file that is closed already has settled.
	_ = o.file.SetReadDeadline(grace)
	<-o.settled
}

func (o *output) pump() {
	defer o.file.Close()
	raw, err := o.file.SyscallConn()
	if err != nil {
		close(o.settled)
		return
	}
	for {
		open, late := o.take(raw, true)
		if late {
			break
		}
		if !open {
			close(o.settled)
			return
		}
	}
	open := o.drain(raw)
	close(o.settled)
	_ = o.file.SetReadDeadline(time.Time{})
	for open {
		// Children that outlive the process may hold the pipe; without a reader they would get SIGPIPE.
		open, _ = o.take(raw, false)
	}
}

// take waits for output once. It is late when the deadline came first.
func (o *output) take(raw syscall.RawConn, keep bool) (open, late bool) {
	err := raw.Read(func(fd uintptr) bool {
		buffer := frames.Take()
		defer frames.Give(buffer)
		count, err := readRetrying(int(fd), buffer.Payload())
		if errors.Is(err, syscall.EAGAIN) {
			return false
		}
		open = count > 0
		if keep && open {
			o.log.Append(o.kind, buffer.Payload()[:count])
		}
		return true
	})
	return open, errors.Is(err, os.ErrDeadlineExceeded)
}

func (o *output) drain(raw syscall.RawConn) (open bool) {
	buffer := frames.Take()
	defer frames.Give(buffer)
	err := raw.Control(func(fd uintptr) {
		for taken := 0; taken < mostInFlight; {
			count, err := readRetrying(int(fd), buffer.Payload())
			if errors.Is(err, syscall.EAGAIN) {
				open = true
				return
			}
			if count <= 0 {
				return
			}
			taken += count
			o.log.Append(o.kind, buffer.Payload()[:count])
		}
		open = true
	})
	return open && err == nil
}

func readRetrying(fd int, into []byte) (int, error) {
	for {
		count, err := syscall.Read(fd, into)
		if !errors.Is(err, syscall.EINTR) {
			return count, err
		}
	}
}
