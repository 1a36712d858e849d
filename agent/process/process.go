// Package process starts programs, keeps the newest of their output and reaps what process 1 must reap.
package process

import (
	"errors"
	"io"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"atoll/agent/fault"
	"atoll/agent/frames"
	"atoll/agent/pty"
	"atoll/agent/user"
)

// Spec says what to start.
type Spec struct {
	Argv     []string
	Cwd      string
	Env      []string
	Asked    map[string]string // the part of the environment that the request gave
	Account  *user.Account
	Stdin    bool // false: /dev/null
	Terminal *pty.Size
	Timeout  time.Duration // 0: none; then the process group gets SIGKILL
	Tag      string
	Hidden   bool // not listed
	Passing  bool // whoever follows its output keeps it, so it keeps little itself
}

func (s *Spec) variable(name string) string {
	for i := len(s.Env) - 1; i >= 0; i-- {
		if value, ok := strings.CutPrefix(s.Env[i], name+"="); ok {
			return value
		}
	}
	return ""
}

func (s *Spec) kept() int {
	if s.Passing {
		return frames.MaxPayload
	}
	return keptBytes
}

// Process is one that the agent started; it leads its own session and process group.
type Process struct {
	Spec
	PID       int
	StartedAt time.Time
	Log       *Log

	outputs  []*output
	timer    *time.Timer
	timedOut atomic.Bool
	// memoryKill is the last of its programs that was killed for its memory.
	memoryKill atomic.Pointer[MemoryKill]
	gone       chan struct{} // closed when the leader has ended

	inputMu sync.Mutex // one writer at a time
	closing sync.Mutex
	input   *os.File // guarded by closing

	resizing resizing
}

// Gone is closed when the process has ended, which may be before its output is read.
func (p *Process) Gone() <-chan struct{} { return p.gone }

func (p *Process) running() bool {
	select {
	case <-p.gone:
		return false
	default:
		return true
	}
}

// Signal sends a signal to the process group.
func (p *Process) Signal(signal syscall.Signal) error {
	if !p.running() {
		return missing(p.PID)
	}
	err := syscall.Kill(-p.PID, signal)
	switch {
	case errors.Is(err, syscall.ESRCH):
		return missing(p.PID)
	case errors.Is(err, syscall.EINVAL):
		return fault.New(fault.Invalid, "there is no signal %d", int(signal))
	}
	return err
}

// Write hands bytes to the standard input or terminal and waits until they are taken.
func (p *Process) Write(source io.Reader) error {
	p.inputMu.Lock()
	defer p.inputMu.Unlock()
	file, err := p.openInput()
	if err != nil {
		return err
	}
	buffer := frames.Take()
	defer frames.Give(buffer)
	for {
		count, failed := source.Read(buffer.Payload())
		if count > 0 {
			if _, err := file.Write(buffer.Payload()[:count]); err != nil {
				return p.inputFault(err)
			}
		}
		if errors.Is(failed, io.EOF) {
			return nil
		}
		if failed != nil {
			return fault.New(fault.Invalid, "read the input: %v", failed)
		}
	}
}

func (p *Process) openInput() (*os.File, error) {
	p.closing.Lock()
	defer p.closing.Unlock()
	if !p.running() {
		return nil, missing(p.PID)
	}
	if p.input == nil {
		return nil, fault.New(fault.Invalid, "stdin not enabled or closed")
	}
	return p.input, nil
}

func (p *Process) inputFault(err error) error {
	if !p.running() {
		return missing(p.PID)
	}
	if errors.Is(err, syscall.EPIPE) || errors.Is(err, os.ErrClosed) {
		return fault.New(fault.Invalid, "process %d has closed its standard input", p.PID)
	}
	return err
}

// CloseInput ends the standard input. A terminal gets its end-of-file character instead.
func (p *Process) CloseInput() error {
	if p.Terminal != nil {
		return p.Write(strings.NewReader("\x04"))
	}
	if _, err := p.openInput(); err != nil {
		return err
	}
	p.dropInput()
	return nil
}

func (p *Process) dropInput() {
	p.closing.Lock()
	defer p.closing.Unlock()
	if p.input != nil && p.Terminal == nil {
		p.input.Close()
	}
	p.input = nil
}

func (p *Process) expire() {
	p.timedOut.Store(true)
	// It may have ended in this very moment.
	_ = p.Signal(syscall.SIGKILL)
}

func (p *Process) finish(status syscall.WaitStatus) {
	if p.timer != nil {
		p.timer.Stop()
	}
	p.dropInput()
	for _, output := range p.outputs {
		output.settle()
	}
	end := endOf(status, p.timedOut.Load())
	end.MemoryKill = p.memoryKill.Load()
	p.Log.Finish(end)
}

func endOf(status syscall.WaitStatus, timedOut bool) End {
	if status.Signaled() {
		signal := int(status.Signal())
		return End{ExitCode: 128 + signal, Signal: signal, TimedOut: timedOut && signal == int(syscall.SIGKILL)}
	}
	return End{ExitCode: status.ExitStatus()}
}

func missing(pid int) error {
	return fault.New(fault.ProcessNotFound, "process with pid %d not found", pid)
}
