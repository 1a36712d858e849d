package process

import (
	"errors"
	"sync"
	"syscall"
	"unsafe"
)

const (
	waitAll       = 0
	siginfoBytes  = 128
	siginfoPIDAt  = 16
	waitPeekFlags = syscall.WEXITED | syscall.WNOWAIT
)

// reaper waits for every child there is: those that were entered get their status delivered,
// and the orphans that process 1 inherits are just reaped.
//
// One goroutine waits, so no status can be taken by somebody else.
type reaper struct {
	// starting is held for reading from before a child exists until it is entered.
	starting sync.RWMutex
	mu       sync.Mutex
	ended    map[int]func(syscall.WaitStatus) // guarded by mu
	born     chan struct{}
}

func newReaper() *reaper {
	r := &reaper{ended: map[int]func(syscall.WaitStatus){}, born: make(chan struct{}, 1)}
	go r.run()
	return r
}

// start runs spawn and calls ended, on the reaper's goroutine, once the child has gone.
// entered is called before that with the child's id.
func (r *reaper) start(spawn func() (int, error), entered func(pid int), ended func(syscall.WaitStatus)) error {
	r.starting.RLock()
	defer r.starting.RUnlock()
	pid, err := spawn()
	if err != nil {
		return err
	}
	entered(pid)
	r.mu.Lock()
	r.ended[pid] = ended
	r.mu.Unlock()
	select {
	case r.born <- struct{}{}:
	default:
	}
	return nil
}

func (r *reaper) run() {
	for {
		pid, err := peek()
		switch {
		case errors.Is(err, syscall.EINTR):
		case err != nil:
			// Without any child there can be no orphan either, until the next child is started.
			<-r.born
		default:
			r.reap(pid)
		}
	}
}

func (r *reaper) reap(pid int) {
	ended, known := r.take(pid)
	if !known {
		// It may be a child that ended before it was entered.
		r.starting.Lock()
		ended, known = r.take(pid)
		r.starting.Unlock()
	}
	var status syscall.WaitStatus
	for {
		_, err := syscall.Wait4(pid, &status, syscall.WNOHANG, nil)
		if !errors.Is(err, syscall.EINTR) {
			break
		}
	}
	if known {
		ended(status)
	}
}

func (r *reaper) take(pid int) (func(syscall.WaitStatus), bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	ended, known := r.ended[pid]
	delete(r.ended, pid)
	return ended, known
}

// peek waits until a child has ended and returns its id, leaving it as it is.
func peek() (int, error) {
	var info [siginfoBytes]byte
	_, _, errno := syscall.Syscall6(syscall.SYS_WAITID, waitAll, 0,
		uintptr(unsafe.Pointer(&info)), waitPeekFlags, 0, 0)
	if errno != 0 {
		return 0, errno
	}
	return int(*(*int32)(unsafe.Pointer(&info[siginfoPIDAt]))), nil
}
