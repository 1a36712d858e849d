package process

import (
	"io"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"atoll/agent/fault"
	"atoll/agent/frames"
)

const (
	endedMost  = 1000
	endedFor   = 10 * time.Minute
	endedBytes = 32 << 20
)

// Table owns every process that the agent started. It is safe for concurrent use.
type Table struct {
	// Console, if any, gets a line for each program that starts or ends. It is set before the first one starts.
	Console io.Writer

	reaper *reaper

	mu    sync.Mutex
	live  map[int]*Process // guarded by mu
	ended []ended          // guarded by mu; oldest first
	kept  int              // guarded by mu; sum of ended's kept
}

type ended struct {
	process *Process
	at      time.Time
	kept    int // bytes of output
}

// NewTable starts to reap. There is one table in an agent.
func NewTable() *Table {
	return &Table{reaper: newReaper(), live: map[int]*Process{}}
}

// Start starts a process. The follower gets all of its output, however fast it writes; the caller closes it.
func (t *Table) Start(spec Spec) (*Process, *Follower, error) {
	if err := check(&spec); err != nil {
		return nil, nil, err
	}
	e, err := openEnds(&spec)
	if err != nil {
		return nil, nil, err
	}
	p := &Process{Spec: spec, StartedAt: time.Now(), Log: newLog(spec.kept()), gone: make(chan struct{}), input: e.input}
	follower := p.Log.Follow(true)
	err = t.reaper.start(
		func() (int, error) { return spawn(&spec, e) },
		func(pid int) { t.enter(p, pid, e) },
		func(status syscall.WaitStatus) {
			close(p.gone)
			go t.end(p, status)
		})
	if err != nil {
		e.closeAll()
		return nil, nil, err
	}
	e.closeChild()
	return p, follower, nil
}

func (t *Table) tell(p *Process, what string) {
	if t.Console != nil && !p.Hidden {
		// A console that cannot be written stops no program.
		_, _ = io.WriteString(t.Console, consoleLine(time.Now(), p.PID, what))
	}
}

func check(spec *Spec) error {
	if len(spec.Argv) == 0 {
		return fault.New(fault.Invalid, "argv is empty")
	}
	for _, text := range slices.Concat(spec.Argv, spec.Env, []string{spec.Cwd}) {
		if strings.ContainsRune(text, 0) {
			return fault.New(fault.Invalid, "arguments, environment and cwd cannot contain a zero byte")
		}
	}
	return nil
}

func (t *Table) enter(p *Process, pid int, e *ends) {
	p.PID = pid
	for _, kind := range []byte{frames.Stdout, frames.Stderr, frames.Terminal} {
		if file := e.outputs[kind]; file != nil {
			p.outputs = append(p.outputs, startOutput(file, kind, p.Log))
		}
	}
	if p.Timeout > 0 {
		p.timer = time.AfterFunc(p.Timeout, p.expire)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.ended = slices.DeleteFunc(t.ended, func(e ended) bool {
		if e.process.PID == pid {
			t.kept -= e.kept
			return true
		}
		return false
	})
	t.live[pid] = p
	t.tell(p, "started: "+described(p.Argv))
}

func (t *Table) end(p *Process, status syscall.WaitStatus) {
	t.tell(p, endOf(status, p.timedOut.Load()).describe())
	p.finish(status)
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.live[p.PID] == p {
		delete(t.live, p.PID)
		if !p.Hidden {
			kept := p.Log.size()
			t.ended = append(t.ended, ended{p, time.Now(), kept})
			t.kept += kept
		}
	}
	t.tidy()
}

// tidy forgets the oldest ended processes, and the oldest output when all of it is too much.
func (t *Table) tidy() {
	drop := max(0, len(t.ended)-endedMost)
	for drop < len(t.ended) && time.Since(t.ended[drop].at) > endedFor {
		drop++
	}
	for _, e := range t.ended[:drop] {
		t.kept -= e.kept
	}
	t.ended = slices.Delete(t.ended, 0, drop)
	for i := 0; t.kept > endedBytes && i < len(t.ended); i++ {
		t.ended[i].process.Log.forget()
		t.kept -= t.ended[i].kept
		t.ended[i].kept = 0
	}
}

// Get finds a process that runs or ended lately.
func (t *Table) Get(pid int) (*Process, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.tidy()
	if p, ok := t.live[pid]; ok {
		return p, nil
	}
	for _, e := range t.ended {
		if e.process.PID == pid {
			return e.process, nil
		}
	}
	return nil, missing(pid)
}

// GetTagged finds the newest process with that tag.
func (t *Table) GetTagged(tag string) (*Process, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.tidy()
	var newest *Process
	for _, p := range t.live {
		if p.Tag == tag && (newest == nil || p.StartedAt.After(newest.StartedAt)) {
			newest = p
		}
	}
	for i := len(t.ended) - 1; newest == nil && i >= 0; i-- {
		if t.ended[i].process.Tag == tag {
			newest = t.ended[i].process
		}
	}
	if newest == nil {
		return nil, fault.New(fault.ProcessNotFound, "process with tag %s not found", tag)
	}
	return newest, nil
}

// List returns the processes that run, ordered by their ids.
func (t *Table) List() []*Process {
	t.mu.Lock()
	defer t.mu.Unlock()
	var found []*Process
	for _, p := range t.live {
		if !p.Hidden && p.running() {
			found = append(found, p)
		}
	}
	slices.SortFunc(found, func(a, b *Process) int { return a.PID - b.PID })
	return found
}
