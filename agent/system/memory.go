package system

import (
	"cmp"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

const (
	// reserveLeast is about the host's memory that the guest's kernel takes for itself, and perProcess its further memory for
	// each process: the guest does not see either.
	reserveLeast = 48 << 20
	perProcess   = 768 << 10
	reserveShare = 16
	reserveMost  = 3
	// fillRate is how many bytes a second a guest takes at the most.
	fillRate  = 4 << 30
	lookOften = 10 * time.Millisecond
	// leastStep is how much more is used at least when the guard looks again.
	leastStep  = 4 << 20
	lookSeldom = 10 * time.Second
	// awaitMemory is an option of prctl that only the kernel of our engine has, see native/patches/await-memory.
	awaitMemory = 0x61746f6c
	// biggestShare is the least part of the used memory that a killed process must hold.
	biggestShare = 20
	// worthIt is the least memory that a process killed for the host must hold.
	worthIt = 8 << 20
	// sparing is how long the kernel of a busy host may take to give back a killed process's memory. Until then only processes
	// of about the same size are killed too.
	sparing = 2 * time.Second
)

// waited is how a wait ended.
type waited int

const (
	grown  waited = iota // more may be used, or perhaps
	sparse               // much more may be used already than is: the kernel cannot tell when that is used
	cannot               // the kernel cannot tell at all
)

// MemoryGuard kills the biggest process when memory runs out: the kernel of the guest does not, and the host would end
// the whole guest.
type MemoryGuard struct {
	Root    string
	Console io.Writer
	// Note, if any, is called with each process that is about to be killed; the returned function takes that back. A total of
	// 0 says that the host ran short of memory.
	Note  func(pid int, name string, held, used, total int64) (forget func())
	limit atomic.Int64
	// await blocks until more than mark bytes may be used, or earlier.
	await func(mark, apart int64) waited
	// limited wakes Run when the limit has changed.
	limited chan struct{}

	mu          sync.Mutex // one kill at a time
	killedBytes int64      // guarded by mu
	killedAt    time.Time  // guarded by mu
}

// NewMemoryGuard makes the guard of this guest. It writes to the console which programs it killed.
func NewMemoryGuard(console io.Writer) *MemoryGuard {
	return &MemoryGuard{Root: "/", Console: console, await: awaitUse, limited: make(chan struct{}, 1)}
}

// SetLimit says how much memory the guest may use, in bytes; 0 leaves that to what its kernel says.
func (g *MemoryGuard) SetLimit(bytes int64) {
	g.limit.Store(bytes)
	select {
	case g.limited <- struct{}{}:
	default: // it is about to look
	}
}

// Run guards for ever. It sleeps until the kernel wakes it, and programs that take more memory wait until it sleeps again. Where the
// kernel cannot tell, how often it looks depends on how much is left.
func (g *MemoryGuard) Run() {
	how := grown
	for {
		used, total, ok := g.use()
		if !ok {
			return
		}
		kept := reserve(total)
		if used > total/2 {
			kept += perProcess * g.processes()
		}
		left := total - kept - used
		if left < 0 {
			g.killBiggest(used, total, left < -kept/2)
		}
		if how != cannot && left >= 0 {
			select {
			case how = <-g.exceeded(g.mark(used, total, left), reserve(total)/2):
			case <-g.limited:
				continue
			}
			if how == grown {
				continue
			}
		}
		select {
		case <-time.After(pause(left)):
		case <-g.limited:
		}
	}
}

// mark is how much may be used until the guard looks again. The last stretch is as long as the reserve, and taken in steps: what
// was given back counts as used until it looks. In the kernel each new process counts as perProcess.
func (g *MemoryGuard) mark(used, total, left int64) int64 {
	mark := used + left - reserve(total)
	if used <= total/2 {
		mark = max(mark-perProcess*g.processes(), min(mark, total/2)) // up to the half processes do not count
		if mark > used {
			return mark
		}
	}
	return max(mark, used+max(left/2, leastStep))
}

// exceeded waits in a thread of its own: the kernel ends the wait before when another begins.
func (g *MemoryGuard) exceeded(mark, apart int64) <-chan waited {
	done := make(chan waited, 1)
	go func() { done <- g.await(mark, apart) }()
	return done
}

func awaitUse(mark, apart int64) waited {
	short, _, failed := syscall.Syscall6(syscall.SYS_PRCTL, awaitMemory, uintptr(mark), perProcess, uintptr(apart), 0, 0)
	switch {
	case failed == syscall.EINTR:
		return grown
	case failed != 0:
		return cannot
	case short != 0:
		return sparse
	}
	return grown
}

func reserve(total int64) int64 {
	return min(max(reserveLeast, total/reserveShare), total/reserveMost)
}

// pause is the shortest time to use up the rest.
func pause(left int64) time.Duration {
	wanted := time.Duration(float64(left) / fillRate * float64(time.Second))
	return min(max(wanted, lookOften), lookSeldom)
}

// use asks by a call of its own: to write /proc/meminfo the kernel of the guest looks at all of its pages, a millisecond each time.
func (g *MemoryGuard) use() (used, total int64, ok bool) {
	var info syscall.Sysinfo_t
	if syscall.Sysinfo(&info) != nil {
		return 0, 0, false
	}
	used, total = g.within(&info)
	return used, total, total > 0
}

func (g *MemoryGuard) within(info *syscall.Sysinfo_t) (used, total int64) {
	unit := int64(info.Unit)
	used, total = int64(info.Totalram-info.Freeram)*unit, int64(info.Totalram)*unit
	if limit := g.limit.Load(); limit > 0 {
		total = limit
	}
	return used, total
}

// KillForHost kills the biggest process because the host ran short of memory. It returns its name and what it held;
// false says that none is worth it.
func (g *MemoryGuard) KillForHost() (name string, heldBytes int64, killed bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	found := g.biggest()
	if len(found) == 0 || found[0].resident < worthIt {
		return "", 0, false
	}
	used, _, _ := g.use()
	g.killedBytes, g.killedAt = found[0].resident, time.Now()
	return g.name(found[0].pid), found[0].resident, g.kill(found[0], used, 0)
}

func (g *MemoryGuard) killBiggest(used, total int64, last bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	found := g.biggest()
	if len(found) == 0 || found[0].resident < used/biggestShare || g.spares(found[0].resident, time.Now()) {
		return
	}
	g.killedBytes, g.killedAt = found[0].resident, time.Now()
	for _, each := range found {
		// One alone may free too little in time when there are many like it.
		if each == found[0] || last && each.resident > found[0].resident/2 {
			g.kill(each, used, total)
		}
	}
	g.awaitEnd(found[0].pid)
}

// spares tells whether a process is small beside the one that was killed last, whose memory may still be counted.
func (g *MemoryGuard) spares(resident int64, now time.Time) bool {
	return resident < g.killedBytes/2 && now.Sub(g.killedAt) < sparing
}

// kill tells whether it sent the signal. A total of 0 says that the host ran short of memory.
func (g *MemoryGuard) kill(each held, used, total int64) bool {
	name := g.name(each.pid)
	if g.Root != "/" {
		return false
	}
	forget := func() {}
	if g.Note != nil {
		forget = g.Note(each.pid, name, each.resident, used, total)
	}
	if syscall.Kill(each.pid, syscall.SIGKILL) != nil {
		forget()
		return false
	}
	const mib = 1 << 20
	why := fmt.Sprintf("when %d MiB of %d MiB were used", used/mib, total/mib)
	if total == 0 {
		why = "when the host ran short of memory"
	}
	if g.Console != nil {
		// A console that is full must not keep memory from being freed.
		_, _ = fmt.Fprintf(g.Console, "%s program %d (%s) was killed: it held %d MiB, %s\n",
			time.Now().UTC().Format(time.RFC3339), each.pid, name, each.resident/mib, why)
	}
	return true
}

// awaitEnd keeps the next process from being killed for memory that this one still holds.
func (g *MemoryGuard) awaitEnd(pid int) {
	const most = 10
	for range most {
		if _, resident := g.resident(strconv.Itoa(pid)); resident == 0 {
			return
		}
		time.Sleep(lookOften)
	}
}

// held is the memory of one process.
type held struct {
	pid      int
	resident int64
}

func (g *MemoryGuard) processes() (count int64) {
	for _, name := range g.names() {
		if name[0] >= '0' && name[0] <= '9' {
			count++
		}
	}
	return count
}

func (g *MemoryGuard) names() []string {
	directory, err := os.Open(filepath.Join(g.Root, "/proc"))
	if err != nil {
		return nil
	}
	defer directory.Close()
	names, err := directory.Readdirnames(-1)
	if err != nil {
		return nil
	}
	return names
}

// biggest are the processes by what they hold, most first, the agent apart.
func (g *MemoryGuard) biggest() []held {
	var found []held
	for _, name := range g.names() {
		if pid, size := g.resident(name); pid > 1 && pid != os.Getpid() && size > 0 {
			found = append(found, held{pid, size})
		}
	}
	slices.SortFunc(found, func(a, b held) int { return cmp.Compare(b.resident, a.resident) })
	return found
}

func (g *MemoryGuard) resident(name string) (pid int, resident int64) {
	pid, err := strconv.Atoi(name)
	if err != nil {
		return 0, 0
	}
	text, err := os.ReadFile(filepath.Join(g.Root, "/proc", name, "statm"))
	if err != nil {
		return pid, 0
	}
	fields := strings.Fields(string(text))
	if len(fields) < 2 {
		return pid, 0
	}
	pages, err := strconv.ParseInt(fields[1], 10, 64)
	if err != nil {
		return pid, 0
	}
	return pid, pages * int64(os.Getpagesize())
}

func (g *MemoryGuard) name(pid int) string {
	text, err := os.ReadFile(filepath.Join(g.Root, "/proc", strconv.Itoa(pid), "comm"))
	if err != nil {
		return "?"
	}
	return strings.Map(printable, strings.TrimSpace(string(text)))
}

func printable(r rune) rune {
	if r < ' ' || r == '\x7f' {
		return '?'
	}
	return r
}
