package kernel

import (
	"time"

	"gvisor.dev/gvisor/pkg/sentry/usage"
)

// guardPatience is how long a fault waits for process 1, which may be gone, to look at what is used. A fault takes 2 MiB at the
// most, so a program that fills memory takes 100 MB a second then.
const guardPatience = 20 * time.Millisecond

// awaitMemoryGuard keeps a program from taking more memory before process 1, which has waited for that, has looked. On a busy
// host it comes late.
func (t *Task) awaitMemoryGuard() {
	looked := usage.Room.Unseen()
	if looked == nil || t.ThreadGroup() == t.Kernel().GlobalInit() {
		return
	}
	// Whatever ends the wait, what follows is the same: a signal is handled before the program runs again.
	_, _ = t.BlockWithTimeout(looked, true, guardPatience)
}
