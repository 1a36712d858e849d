package linux

import (
	"gvisor.dev/gvisor/pkg/errors/linuxerr"
	"gvisor.dev/gvisor/pkg/sentry/kernel"
	"gvisor.dev/gvisor/pkg/sentry/usage"
)

// prAwaitMemory is an option of prctl(2) that process 1 alone has. It blocks until sysinfo(2) may tell that more bytes are used
// than the second argument; each process that begins counts as the third beside. So many bytes as the fourth that may be used
// without being allocated do not count. It may return earlier, and returns 1 at once if more may be used already.
const prAwaitMemory = 0x61746f6c

func awaitMemory(t *kernel.Task, mark, each, apart int64) (uintptr, error) {
	if t.ThreadGroup() != t.Kernel().GlobalInit() || mark < 0 || each < 0 || apart < 0 {
		return 0, linuxerr.EINVAL
	}
	waiting, err := usage.Room.Await(mark, each, func() (uint64, error) {
		total, most, err := t.Kernel().MemoryFile().MostUsage()
		return max(total, most-min(most, uint64(apart))) + usage.MemoryAccounting.Mapped.Load(), err
	})
	if err != nil {
		return 0, err
	}
	if waiting == nil {
		return 1, nil
	}
	return 0, linuxerr.ConvertIntr(t.Block(waiting), linuxerr.ERESTARTSYS)
}
