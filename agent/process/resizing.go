package process

import (
	"os"
	"sync"
	"time"

	"atoll/agent/fault"
	"atoll/agent/pty"
)

// Shells that use readline ask for their terminal's size before each prompt, and set that size. A new size in between would
// be lost for good, so the agent looks again at these times after setting it.
var looksAfter = [...]time.Duration{50 * time.Millisecond, 500 * time.Millisecond}

// resizing is how a terminal's size is changed; of several changes the newest one holds.
type resizing struct {
	mu     sync.Mutex
	number int
}

// Resize changes the size of the terminal.
func (p *Process) Resize(size pty.Size) error {
	if p.Terminal == nil {
		return fault.New(fault.Invalid, "process %d has no terminal", p.PID)
	}
	master, err := p.openInput()
	if err != nil {
		return err
	}
	return p.resizing.set(master, size)
}

func (r *resizing) set(master *os.File, size pty.Size) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	before, err := pty.SizeOf(master)
	if err != nil {
		return err
	}
	if err := pty.Resize(master, size); err != nil {
		return err
	}
	r.number++
	if number := r.number; size != before {
		for _, delay := range looksAfter {
			time.AfterFunc(delay, func() { r.setAgain(master, before, size, number) })
		}
	}
	return nil
}

func (r *resizing) setAgain(master *os.File, before, size pty.Size, number int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.number != number {
		return
	}
	// Any other size is what a program wants; and the terminal may be closed by now.
	if now, err := pty.SizeOf(master); err == nil && now == before {
		_ = pty.Resize(master, size)
	}
}
