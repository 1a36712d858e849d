package systrap

import (
	"fmt"
	"math"
	"sync/atomic"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/abi/linux"
	"gvisor.dev/gvisor/pkg/atomicbitops"
	"gvisor.dev/gvisor/pkg/bpf"
	"gvisor.dev/gvisor/pkg/gomaxprocs"
	"gvisor.dev/gvisor/pkg/hostos"
	"gvisor.dev/gvisor/pkg/hostsyscall"
	"gvisor.dev/gvisor/pkg/log"
	"gvisor.dev/gvisor/pkg/seccomp"
	"gvisor.dev/gvisor/pkg/sentry/arch"
	"gvisor.dev/gvisor/pkg/sentry/platform/systrap/sysmsg"
	"gvisor.dev/gvisor/pkg/sync"
)

// turn is how a context gets to a stub thread and back.
type turn int

const (
	// sharedTurn is one of a subprocess that runs several contexts at once, or of a host that knows no handoff: upstream's way.
	sharedTurn turn = iota
	// spinTurn is one in which sentry and guest have a processor each and look for each other's answer.
	spinTurn
	// handoffTurn is one in which they take turns on one processor.
	handoffTurn
)

const (
	// spinAfter is when the first context may spin. A machine that starts does not have the host to itself.
	spinAfter = 3 * time.Second
	// crowdAll is the share of turns in which others wanted the processor of who spun if that was so in all, crowdMax the most
	// for which a context spins.
	crowdAll = 256
	crowdMax = 160
	// spinRestMin and spinRestMax bound for how many turns a context does not spin then. Each time that it happens again
	// it is twice as many, until spinCalm turns have gone well.
	spinRestMin = 64
	spinRestMax = 8192
	spinCalm    = 1024

	// handoffRestMin and handoffRestMax bound for how long a subprocess goes without handoff after two of its contexts wanted to
	// run at once. Each time that it happens again it is twice as long, until handoffCalm turns have gone well.
	handoffRestMin = time.Millisecond
	handoffRestMax = time.Second
	handoffCalm    = 1024

	// handoffMaxTries is how often in a row a wait for a thread may be interrupted until the thread counts as dead.
	handoffMaxTries = math.MaxUint16
)

var (
	// handoffKernel is whether the kernel wakes who waits for a notification of a thread that has ended (Linux 6.11).
	handoffKernel bool
	// handoffSupported is whether that is so and the kernel wakes who waits for a seccomp notification on the processor of who caused it
	// (Linux 6.6). It is known once a subprocess was made.
	handoffSupported atomicbitops.Bool

	spinFrom = time.Now().Add(spinAfter)
	// spinners counts contexts whose goroutines spin for them, crowds how often others wanted the processor of who spun for one.
	spinners atomicbitops.Int32
	crowds   atomicbitops.Uint32
)

// spinState decides when a context spins.
type spinState struct {
	// crowd is the share of turns in which others wanted the processor, of crowdAll, the last ones counted most.
	crowd int
	// rest is the number of turns until it spins again, restLen the last such number.
	rest, restLen int
	// calm counts turns since the last rest.
	calm int
}

// next returns whether the next turn is one to spin in.
func (s *spinState) next() bool {
	if neverEnableFastPath || fastpath.nrMaxAwakeStubThreads.Load()*2 > uint32(maxSysmsgThreads) || time.Now().Before(spinFrom) {
		return false
	}
	if s.rest > 0 {
		s.rest--
		return false
	}
	return true
}

// done notes whether others wanted the processor of who spun.
func (s *spinState) done(crowded bool) {
	if !crowded {
		s.crowd -= s.crowd / 8
	} else {
		s.crowd += (crowdAll - s.crowd) / 8
	}
	if s.calm++; s.calm > spinCalm {
		s.restLen = 0
	}
	if s.crowd > crowdMax {
		s.restLen = min(max(2*s.restLen, spinRestMin), spinRestMax)
		s.rest, s.crowd, s.calm = s.restLen, 0, 0
	}
}

// offer gives the processor to who else wants it, and notes whether somebody did.
func offer() {
	began := cputicks()
	hostsyscall.RawSyscall(unix.SYS_SCHED_YIELD, 0, 0, 0)
	// It takes a fraction of a microsecond if nobody did.
	if uint64(cputicks()-began) > deepSleepTimeout/4 {
		crowds.Add(1)
	}
}

// handoff is how the only running context of a subprocess and the goroutine that serves it take turns on one processor.
type handoff struct {
	// thread is a stub thread that runs contexts of handoffTurns only. The kernel tells listener when it waits for one. Both are
	// set before the subprocess runs anything; thread is nil where handoff is not supported.
	thread   *sysmsgThread
	listener uintptr

	// The owner alone uses these.

	// parked is the notification of the thread's waiting, 0 if it may be running.
	parked uint64
	// crowded is whether one of the two had to wait for the processor, so that another one may be better.
	crowded bool
	notif   linux.SeccompNotif
	resp    linux.SeccompNotifResp

	mu sync.Mutex
	// owner has the thread.
	// +checklocks:mu
	owner *sharedContext
	// running counts contexts that stub threads run, or are to run.
	// +checklocks:mu
	running int
	// recalled is whether owner was told to let others run, left is told when it does.
	// +checklocks:mu
	recalled bool
	left     sync.Cond
	// calm counts owners since the last that was recalled.
	// +checklocks:mu
	calm int
	// rest is how long there was no handoff after that, restUntil until when.
	// +checklocks:mu
	rest time.Duration
	// +checklocks:mu
	restUntil time.Time
}

// initHandoff asks for the kernel's version, which no filter forbids yet. If handoff is disabled, each turn is the shared one.
//
// Precondition: maxSysmsgThreads has been set.
func initHandoff(disabled bool) {
	if disabled {
		log.Infof("Systrap: handoff is disabled")
		return
	}
	version, err := hostos.KernelVersion()
	handoffKernel = err == nil && version.AtLeast(6, 11)
	if handoffKernel {
		// Who waits for a guest in a call of the host keeps its P. Where all are kept so, Go's watching thread takes them away
		// each 20 µs.
		gomaxprocs.Add(2)
	}
}

func handoffRules() []bpf.Instruction {
	instrs, err := filterInstructions(handoffFilter, nil, handoffProgram)
	if err != nil {
		panic(fmt.Sprintf("failed to build rules for handoff threads: %v", err))
	}
	return instrs
}

// handoffProgram tells of a stub thread that waits for a context.
func handoffProgram() *seccomp.Program {
	return &seccomp.Program{
		RuleSets: []seccomp.RuleSet{{
			Rules: seccomp.MakeSyscallRules(map[uintptr]seccomp.SyscallRule{
				unix.SYS_FUTEX: seccomp.PerArg{seccomp.AnyValue{}, seccomp.EqualTo(linux.FUTEX_WAIT)},
			}),
			Action: seccomp.UserNotify,
		}},
		Options: seccomp.ProgramOptions{DefaultAction: seccomp.Allow, BadArchAction: seccomp.Allow},
	}
}

// install makes this stub thread, which ptrace has stopped, the one for handoffTurns. Where there are no descriptors left it stays
// an ordinary one.
func (h *handoff) install(thread *sysmsgThread) error {
	t := thread.thread
	fd, err := t.syscallIgnoreInterrupt(&t.initRegs, seccomp.SYS_SECCOMP,
		arch.SyscallArgument{Value: uintptr(linux.SECCOMP_SET_MODE_FILTER)},
		arch.SyscallArgument{Value: uintptr(linux.SECCOMP_FILTER_FLAG_NEW_LISTENER)},
		arch.SyscallArgument{Value: stubHandoffRules})
	if err != nil {
		log.Warningf("a stub thread without handoff: %v", err)
		return nil
	}
	h.thread, h.listener = thread, fd
	h.left.L = &h.mu
	if errno := h.setFlags(linux.SECCOMP_USER_NOTIF_FD_SYNC_WAKE_UP); errno != 0 {
		return errno
	}
	return nil
}

// renew forgets what the last user of the subprocess has caused.
func (h *handoff) renew() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.crowded = false
	h.calm, h.rest = 0, 0
}

// close gives up the listener of a dead subprocess.
func (h *handoff) close() {
	if h.thread != nil {
		unix.Close(int(h.listener))
		h.thread = nil
	}
}

// giveUp kills a subprocess that can have no stub thread but the one for handoffTurns: a context in another turn would wait for ever.
func (s *subprocess) giveUp() {
	s.dead.Store(true)
	s.syscallThreadMu.Lock()
	defer s.syscallThreadMu.Unlock()
	s.syscallThread.thread.kill()
}

// enter counts ctx as running and returns how it is to. Who has the thread gives it up before another one runs.
func (h *handoff) enter(ctx *sharedContext) turn {
	if h.thread == nil {
		return sharedTurn
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.running++
	if h.running == 1 {
		if ctx.spin.next() {
			return spinTurn
		}
		if h.rest == 0 || time.Now().After(h.restUntil) {
			h.owner, h.recalled = ctx, false
			if h.calm++; h.calm > handoffCalm {
				h.rest = 0
			}
			return handoffTurn
		}
		return sharedTurn
	}
	for h.owner != nil {
		if !h.recalled {
			h.recalled = true
			h.calm = 0
			h.rest = min(max(2*h.rest, handoffRestMin), handoffRestMax)
			h.restUntil = time.Now().Add(h.rest)
			h.owner.NotifyInterrupt()
		}
		h.left.Wait()
	}
	return sharedTurn
}

// leave ends what enter began.
func (h *handoff) leave(ctx *sharedContext) {
	if h.thread == nil {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.running--
	if h.owner == ctx {
		h.owner = nil
		if h.recalled {
			h.left.Broadcast()
		}
	}
}

// run lets the thread run ctx, which is in the queue, and returns when it has come back.
//
// Precondition: enter returned handoffTurn for ctx.
func (h *handoff) run(ctx *sharedContext) error {
	q := ctx.subprocess.contextQueue
	// The thread need not tell that ctx has come back: that it waits for another one tells.
	ctx.enableSentryFastPath()
	if h.parked == 0 {
		if err := h.await(); err != nil {
			return err
		}
	}
	for {
		if err := h.resume(q); err != nil {
			return err
		}
		if err := h.await(); err != nil {
			return err
		}
		if ctx.state() != sysmsg.ContextStateNone {
			h.crowded = ctx.late()
			return nil
		}
		switch ctx.threadID() {
		case uint32(h.thread.thread.sysmsgStackID), invalidThreadID:
			// The guest itself has called what tells us, or a thread that woke up for no reason was told in the place of this one.
		default:
			// Such a thread has taken ctx, too. It tells when it reads this in time; otherwise it is looked for.
			ctx.disableSentryFastPath()
			return ctx.sleepOnState(sysmsg.ContextStateNone)
		}
	}
}

// resume lets the parked thread look for a context, on this processor, or on an idle one if this one is crowded.
func (h *handoff) resume(q *contextQueue) error {
	if h.crowded {
		h.crowded = false
		h.setFlags(0)
		defer h.setFlags(linux.SECCOMP_USER_NOTIF_FD_SYNC_WAKE_UP)
	}
	atomic.StoreUint32(&q.numThreadsToWakeup, 1)
	for {
		h.resp = linux.SeccompNotifResp{ID: h.parked}
		h.parked = 0
		errno := hostsyscall.RawSyscallErrno(unix.SYS_IOCTL, h.listener, uintptr(linux.SECCOMP_IOCTL_NOTIF_SEND), uintptr(unsafe.Pointer(&h.resp)))
		switch errno {
		case 0:
			return nil
		case unix.ENOENT:
			// A signal has interrupted its waiting. It waits again.
			if err := h.await(); err != nil {
				return err
			}
		default:
			return fmt.Errorf("failed to resume a stub thread: %w", errno)
		}
	}
}

// await waits until the thread is parked.
func (h *handoff) await() error {
	for range handoffMaxTries {
		h.notif = linux.SeccompNotif{}
		_, _, errno := unix.Syscall(unix.SYS_IOCTL, h.listener, uintptr(linux.SECCOMP_IOCTL_NOTIF_RECV), uintptr(unsafe.Pointer(&h.notif)))
		switch errno {
		case 0:
			h.parked = h.notif.ID
			return nil
		case unix.EINTR:
		case unix.ENOENT:
			// Its waiting was interrupted before it was told, or it is dead.
			if !h.thread.subproc.alive() {
				return errDeadSubprocess
			}
		default:
			return fmt.Errorf("failed to wait for a stub thread: %w", errno)
		}
	}
	return errDeadSubprocess
}

func (h *handoff) setFlags(flags uintptr) unix.Errno {
	return hostsyscall.RawSyscallErrno(unix.SYS_IOCTL, h.listener, linux.SECCOMP_IOCTL_NOTIF_SET_FLAGS, flags)
}

// late returns whether it took longer to begin with a context, or to notice that it had come back, than spinning lasts.
func (sc *sharedContext) late() bool {
	return uint64(sc.getStateChangedTimeDiff()) > deepSleepTimeout || uint64(sc.getAckedTimeDiff()) > deepSleepTimeout
}
