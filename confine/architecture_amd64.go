package confine

import "golang.org/x/sys/unix"

const architecture = unix.AUDIT_ARCH_X86_64

// The call of unix.Poll, where it is one that other computers do not have.
var polling = []uintptr{unix.SYS_POLL}
