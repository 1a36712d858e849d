package process

import (
	"errors"
	"os"
	"sync"
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
	kind    byte
	log     *Log
	settled chan struct{} // closed when everything that the process itself wrote is in the log

	mu    sync.Mutex
	file  *os.File  // guarded by mu; nil while the pump gushes
	until time.Time // guarded by mu; when the ended process's output counts as complete
}

func startOutput(file *os.File, kind byte, log *Log) *output {
	o := &output{file: file, kind: kind, log: log, settled: make(chan struct{})}
	go o.pump()
	return o
}

// settle takes what the ended process left in the pipe and returns when that is in the log.
func (o *output) settle() {
	until := time.Time{}.Add(time.Nanosecond)
	if o.kind == frames.Terminal {
		until = time.Now().Add(terminalGrace)
	}
	o.mu.Lock()
	o.until = until
	if o.file != nil {
		// A file that is closed already has settled.
		_ = o.file.SetReadDeadline(until)
	}
	o.mu.Unlock()
	<-o.settled
}

func (o *output) settling() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return !o.until.IsZero()
}

func (o *output) pump() {
	defer func() { o.file.Close() }()
	open := o.takeAll()
	if open {
		open = o.drain()
	}
	close(o.settled)
	_ = o.file.SetReadDeadline(time.Time{})
	for open {
		// Children that outlive the process may hold the pipe; without a reader they would get SIGPIPE.
		count, _ := o.take(false)
		open = count > 0
	}
}

// takeAll takes output until it ends, or until it counts as complete and the file is still open.
func (o *output) takeAll() (open bool) {
	var flow flow
	for {
		count, late := o.take(true)
		if late {
			return true
		}
		if count == 0 {
			return false
		}
		if o.kind != frames.Terminal && flow.strong(count) {
			o.gush()
		}
	}
}

// take waits for output once and tells its size, 0 at the end. It is late when the deadline came first.
func (o *output) take(keep bool) (count int, late bool) {
	raw, err := o.file.SyscallConn()
	if err != nil {
		return 0, false
	}
	err = raw.Read(func(fd uintptr) bool {
		buffer := frames.Take()
		defer frames.Give(buffer)
		var failed error
		count, failed = readRetrying(int(fd), buffer.Payload())
		if errors.Is(failed, syscall.EAGAIN) {
			return false
		}
		count = max(0, count)
		if keep && count > 0 {
			o.log.Append(o.kind, buffer.Payload()[:count])
		}
		return true
	})
	return max(0, count), errors.Is(err, os.ErrDeadlineExceeded)
}

func (o *output) drain() (open bool) {
	raw, err := o.file.SyscallConn()
	if err != nil {
		return false
	}
	buffer := frames.Take()
	defer frames.Give(buffer)
	err = raw.Control(func(fd uintptr) {
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
