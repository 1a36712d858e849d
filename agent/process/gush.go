package process

import (
	"errors"
	"os"
	"syscall"
	"time"

	"atoll/agent/frames"
)

const (
	// strongBytes without a pause of stillFor make a flow strong.
	strongBytes = 256 << 10
	stillFor    = 5 * time.Millisecond
	gushPause   = time.Millisecond
	gushIdle    = 20
	setPipeSize = 1031 // F_SETPIPE_SZ
)

// flow notices output that comes without a pause.
type flow struct {
	bytes int
	last  time.Time
}

func (f *flow) strong(count int) bool {
	now := time.Now()
	if now.Sub(f.last) > stillFor {
		f.bytes = 0
	}
	f.last = now
	f.bytes += count
	return f.bytes >= strongBytes
}

// gush reads a pipe with a strong flow. It enlarges the pipe, leaves the poller, which would wake the agent at
// every small write of the program, and looks once a millisecond, until nothing comes any more.
func (o *output) gush() {
	fd, err := o.leavePoller()
	if err != nil {
		// It goes on as before, only slower.
		return
	}
	buffer := frames.Take()
	defer frames.Give(buffer)
	// A pipe that cannot grow only needs more looks.
	_, _, _ = syscall.Syscall(syscall.SYS_FCNTL, uintptr(fd), setPipeSize, mostInFlight)
	for idle := 0; idle < gushIdle && !o.settling(); idle++ {
		count, err := readRetrying(fd, buffer.Payload())
		if count > 0 {
			idle = 0
			o.log.Append(o.kind, buffer.Payload()[:count])
		} else if !errors.Is(err, syscall.EAGAIN) {
			break
		}
		if count < frames.MaxPayload {
			time.Sleep(gushPause)
		}
	}
	o.enterPoller(fd)
}

func (o *output) leavePoller() (fd int, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	raw, err := o.file.SyscallConn()
	if err != nil {
		return 0, err
	}
	failed := raw.Control(func(old uintptr) {
		copied, _, errno := syscall.Syscall(syscall.SYS_FCNTL, old, syscall.F_DUPFD_CLOEXEC, 0)
		if fd = int(copied); errno != 0 {
			err = errno
		}
	})
	if failed != nil || err != nil {
		return 0, errors.Join(failed, err)
	}
	o.file.Close()
	o.file = nil
	return fd, nil
}

func (o *output) enterPoller(fd int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.file = os.NewFile(uintptr(fd), "pipe")
	// A time long ago ends the next wait at once.
	_ = o.file.SetReadDeadline(o.until)
}
