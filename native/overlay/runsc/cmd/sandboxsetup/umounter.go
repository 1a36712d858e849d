package sandboxsetup

import (
	"os"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"

	"gvisor.dev/gvisor/pkg/hostsyscall"
	"gvisor.dev/gvisor/runsc/cmd/util"
)

var (
	umountedPath = [...]byte{'/', 'p', 'r', 'o', 'c', 0}
	umounterByte [1]byte
)

// ForkProcUmounter is ExecProcUmounter for a process that does not execute itself again: the child is a fork of this
// one and ends with it.
func ForkProcUmounter() *os.File {
	var pipe [2]int
	if err := unix.Pipe2(pipe[:], unix.O_CLOEXEC); err != nil {
		util.Fatalf("error creating a pipe: %v", err)
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var all, before unix.Sigset_t
	for i := range all.Val {
		all.Val[i] = ^uint64(0)
	}
	// The child has no scheduler, so it may not run a handler of the runtime.
	if err := unix.PthreadSigmask(unix.SIG_BLOCK, &all, &before); err != nil {
		util.Fatalf("error blocking signals: %v", err)
	}
	errno := forkUmounter(uintptr(pipe[0]), uintptr(pipe[1]))
	if err := unix.PthreadSigmask(unix.SIG_SETMASK, &before, nil); err != nil {
		util.Fatalf("error unblocking signals: %v", err)
	}
	if errno != 0 {
		util.Fatalf("error forking the umounter: %v", errno)
	}
	unix.Close(pipe[0])
	return os.NewFile(uintptr(pipe[1]), "procfs umount sync FD")
}

// forkUmounter returns in the parent only. The child is a copy of one thread: other threads' locks are held for ever in
// it, so it makes system calls and nothing else, on the stack that there is.
//
//go:norace
//go:nosplit
func forkUmounter(reader, writer uintptr) unix.Errno {
	pid, errno := hostsyscall.RawSyscall6(unix.SYS_CLONE, uintptr(unix.SIGCHLD), 0, 0, 0, 0, 0)
	if errno != 0 || pid != 0 {
		return errno
	}
	// With its own end of the pipe open, it would not see that of its parent.
	hostsyscall.RawSyscallErrno(unix.SYS_CLOSE, writer, 0, 0)
	failed := uintptr(1)
	if n, errno := hostsyscall.RawSyscall(unix.SYS_READ, reader, uintptr(unsafe.Pointer(&umounterByte)), 1); errno == 0 && n == 1 {
		if hostsyscall.RawSyscallErrno(unix.SYS_UMOUNT2, uintptr(unsafe.Pointer(&umountedPath)), unix.MNT_DETACH, 0) == 0 {
			failed = 0
		}
	}
	for {
		hostsyscall.RawSyscallErrno(unix.SYS_EXIT_GROUP, failed, 0, 0)
	}
}
