package confine

import (
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// What Go's runtime and sockets that are already open need. Everything else fails with EPERM: there is no way to open, to
// connect, to bind, to execute, or to look at another process.
var allowed = []uintptr{
	unix.SYS_READ, unix.SYS_WRITE, unix.SYS_READV, unix.SYS_WRITEV, unix.SYS_PREAD64, unix.SYS_CLOSE,
	unix.SYS_RECVMSG, unix.SYS_SENDMSG, unix.SYS_RECVFROM, unix.SYS_SENDTO, unix.SYS_SHUTDOWN,
	unix.SYS_GETSOCKNAME, unix.SYS_GETPEERNAME, unix.SYS_GETSOCKOPT, unix.SYS_SETSOCKOPT,
	unix.SYS_FCNTL, unix.SYS_FSTAT, unix.SYS_SPLICE, unix.SYS_PIPE2,
	unix.SYS_EPOLL_CREATE1, unix.SYS_EPOLL_CTL, unix.SYS_EPOLL_PWAIT, unix.SYS_EVENTFD2,
	unix.SYS_FUTEX, unix.SYS_NANOSLEEP, unix.SYS_CLOCK_NANOSLEEP, unix.SYS_CLOCK_GETTIME, unix.SYS_GETTIMEOFDAY,
	unix.SYS_SCHED_YIELD, unix.SYS_SCHED_GETAFFINITY, unix.SYS_RESTART_SYSCALL, unix.SYS_GETRANDOM,
	unix.SYS_MUNMAP, unix.SYS_MADVISE, unix.SYS_MINCORE, unix.SYS_BRK,
	unix.SYS_RT_SIGACTION, unix.SYS_RT_SIGPROCMASK, unix.SYS_RT_SIGRETURN, unix.SYS_SIGALTSTACK,
	unix.SYS_GETPID, unix.SYS_GETTID, unix.SYS_EXIT, unix.SYS_EXIT_GROUP,
	unix.SYS_SET_ROBUST_LIST, unix.SYS_RSEQ, unix.SYS_MEMBARRIER,
}

// What a network needs besides, and the files of names, which come open. Pairs of stream sockets join to another process;
// sockets of other kinds could be connected to what is at a path.
var (
	networking = []uintptr{
		unix.SYS_CONNECT, unix.SYS_ACCEPT4, unix.SYS_PPOLL, unix.SYS_MEMFD_CREATE, unix.SYS_PWRITE64, unix.SYS_FTRUNCATE,
	}
	families = []uint32{unix.AF_INET, unix.AF_INET6}
	queues   = []uint32{unix.SIOCINQ, unix.SIOCOUTQ} // how much is in those of a socket
)

// Of the kind of a socket, what is no flag.
const kindOfSocket = 0xf

// Offsets in struct seccomp_data.
const (
	offsetNumber       = 0
	offsetArchitecture = 4
	offsetArguments    = 16
)

const (
	threadOnly = unix.CLONE_VM | unix.CLONE_THREAD | unix.CLONE_SIGHAND
	noSuchCall = unix.SECCOMP_RET_ERRNO | uint32(unix.ENOSYS)
	refused    = unix.SECCOMP_RET_ERRNO | uint32(unix.EPERM)
)

// seccomp puts the filter on all threads.
func seccomp(allow Allow) error {
	filter := program(allow)
	described := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	_, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER,
		unix.SECCOMP_FILTER_FLAG_TSYNC, uintptr(unsafe.Pointer(&described)))
	if errno != 0 {
		return errno
	}
	return nil
}

func program(allow Allow) []unix.SockFilter {
	filter := []unix.SockFilter{
		load(offsetArchitecture),
		skipIfEqual(architecture, 1),
		result(unix.SECCOMP_RET_KILL_PROCESS),
		load(offsetNumber),
	}
	// Memory that is executable is never made.
	for _, number := range []uint32{unix.SYS_MMAP, unix.SYS_MPROTECT} {
		filter = append(filter, ifArgument(number, 2, func() []unix.SockFilter {
			return []unix.SockFilter{skipUnlessAny(unix.PROT_EXEC, 1), result(refused), result(unix.SECCOMP_RET_ALLOW)}
		})...)
	}
	// Threads are made, processes are not.
	filter = append(filter, ifArgument(unix.SYS_CLONE, 0, func() []unix.SockFilter {
		return []unix.SockFilter{
			{Code: unix.BPF_ALU | unix.BPF_AND | unix.BPF_K, K: threadOnly},
			skipIfEqual(threadOnly, 1), result(refused), result(unix.SECCOMP_RET_ALLOW),
		}
	})...)
	// A signal goes to this process alone: the runtime preempts its threads so.
	filter = append(filter, ifArgument(unix.SYS_TGKILL, 0, func() []unix.SockFilter {
		return []unix.SockFilter{
			skipIfEqual(uint32(os.Getpid()), 1), result(refused), result(unix.SECCOMP_RET_ALLOW),
		}
	})...)
	// The runtime names its memory.
	filter = append(filter, ifArgument(unix.SYS_PRCTL, 0, func() []unix.SockFilter {
		return []unix.SockFilter{
			skipIfEqual(unix.PR_SET_VMA, 1), result(refused), result(unix.SECCOMP_RET_ALLOW),
		}
	})...)
	filter = append(filter, skipUnlessEqual(unix.SYS_CLONE3, 1), result(noSuchCall))
	if allow.Network {
		filter = append(filter, network()...)
	}
	if allow.Accept {
		filter = append(filter, each([]uintptr{unix.SYS_ACCEPT4})...)
	}
	filter = append(filter, each(allowed)...)
	return append(filter, result(refused))
}

func each(numbers []uintptr) []unix.SockFilter {
	var filter []unix.SockFilter
	for _, number := range numbers {
		filter = append(filter, skipUnlessEqual(uint32(number), 1), result(unix.SECCOMP_RET_ALLOW))
	}
	return filter
}

// network allows sockets of the internet, and pairs of streams.
func network() []unix.SockFilter {
	filter := ifArgument(unix.SYS_SOCKET, 0, func() []unix.SockFilter { return oneOf(families) })
	filter = append(filter, ifArgument(unix.SYS_IOCTL, 1, func() []unix.SockFilter { return oneOf(queues) })...)
	filter = append(filter, ifArgument(unix.SYS_SOCKETPAIR, 1, func() []unix.SockFilter {
		return []unix.SockFilter{
			{Code: unix.BPF_ALU | unix.BPF_AND | unix.BPF_K, K: kindOfSocket},
			skipIfEqual(unix.SOCK_STREAM, 1), result(refused), result(unix.SECCOMP_RET_ALLOW),
		}
	})...)
	return append(filter, each(append(polling, networking...))...)
}

// oneOf allows these values.
func oneOf(values []uint32) []unix.SockFilter {
	var filter []unix.SockFilter
	for _, value := range values {
		filter = append(filter, skipUnlessEqual(value, 1), result(unix.SECCOMP_RET_ALLOW))
	}
	return append(filter, result(refused))
}

// ifArgument judges a call by the low half of one of its arguments. All results of the judgement end the filter.
func ifArgument(number uint32, argument int, judge func() []unix.SockFilter) []unix.SockFilter {
	judgement := append([]unix.SockFilter{load(uint32(offsetArguments + 8*argument))}, judge()...)
	return append([]unix.SockFilter{skipUnlessEqual(number, uint8(len(judgement)))}, judgement...)
}

func load(offset uint32) unix.SockFilter {
	return unix.SockFilter{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: offset}
}

func result(value uint32) unix.SockFilter {
	return unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: value}
}

func skipIfEqual(value uint32, count uint8) unix.SockFilter {
	return unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: value, Jt: count}
}

func skipUnlessEqual(value uint32, count uint8) unix.SockFilter {
	return unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: value, Jf: count}
}

// skipUnlessAny skips unless one of the bits is set.
func skipUnlessAny(bits uint32, count uint8) unix.SockFilter {
	return unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JSET | unix.BPF_K, K: bits, Jf: count}
}
