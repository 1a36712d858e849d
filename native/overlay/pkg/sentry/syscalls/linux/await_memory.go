package linux

import (
	"gvisor.dev/gvisor/pkg/errors/linuxerr"
	"gvisor.dev/gvisor/pkg/sentry/kernel"
	"gvisor.dev/gvisor/pkg/sentry/usage"
)

// prAwaitMemory is an option of prctl(2) that process 1 alone has. It blocks until sysinfo(2) may tell that more bytes are used
// than the second argument; each process that begins counts as the third beside. It may return earlier.
const prAwaitMemory = 0x61746f6c

func awaitMemory(t *kernel.Task, mark, each int64) error {
	if t.ThreadGroup() != t.Kernel().GlobalInit() || mark < 0 || each < 0 {
		return linuxerr.EINVAL
	}
	waiting, err := usage.Room.Await(mark, each, func() (uint64, error) {
		most, err := t.Kernel().MemoryFile().MostUsage()
		return most + usage.MemoryAccounting.Mapped.Load(), err
	})
	if err != nil {
		return err
	}
	return linuxerr.ConvertIntr(t.Block(waiting), linuxerr.ERESTARTSYS)
}
