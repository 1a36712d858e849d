// Command attempt gives up its rights and then tries what they are for.
package main

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"runtime"
	"sync"

	"golang.org/x/sys/unix"

	"atoll/confine"
)

func main() {
	if len(os.Args) > 1 {
		if err := confine.AtStart(); err != nil {
			panic(err)
		}
		if _, err := confine.Confine(-1); err != nil {
			panic(err)
		}
	}
	// On a thread of its own, which was there before or is made now.
	var group sync.WaitGroup
	group.Add(1)
	go func() {
		defer group.Done()
		runtime.LockOSThread()
		try()
		if len(os.Args) > 1 {
			tryWildly()
		}
	}()
	group.Wait()
	for range 20 {
		group.Add(1)
		go func() { defer group.Done(); runtime.LockOSThread(); runtime.GC() }()
	}
	group.Wait()
	fmt.Println("alive")
}

func try() {
	tell := func(what string, err error) { fmt.Println(what, err == nil) }
	_, err := os.ReadFile("/proc/self/status")
	tell("open", err)
	_, err = os.OpenFile("/dev/null", os.O_WRONLY, 0)
	tell("write", err)
	tell("exec", exec.Command("/bin/true").Run())
	_, err = net.Listen("tcp", "127.0.0.1:0")
	tell("listen", err)
	_, err = unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW, 0)
	tell("netlink", err)
	_, err = unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM, 0)
	tell("unix", err)
	tell("signal", unix.Kill(os.Getppid(), 0))
	_, err = unix.Mmap(-1, 0, 4096, unix.PROT_READ|unix.PROT_EXEC, unix.MAP_PRIVATE|unix.MAP_ANON)
	tell("executable", err)
	tell("dumpable", unix.Prctl(unix.PR_SET_DUMPABLE, 1, 0, 0, 0))
}

// tryWildly would harm this process if it worked.
func tryWildly() {
	fork := uintptr(unix.CLONE_NEWUSER | unix.CLONE_VM | unix.CLONE_VFORK)
	for what, number := range map[string][2]uintptr{
		"fork": {unix.SYS_CLONE, fork}, "fork as before": {unix.SYS_CLONE, uintptr(unix.SIGCHLD)},
		"ptrace": {unix.SYS_PTRACE, unix.PTRACE_TRACEME}, "bpf": {unix.SYS_BPF, 0}, "kexec": {unix.SYS_KEXEC_LOAD, 0},
		"namespace": {unix.SYS_UNSHARE, unix.CLONE_NEWUSER}, "mount": {unix.SYS_MOUNT, 0},
		"other memory": {unix.SYS_PROCESS_VM_READV, uintptr(os.Getppid())}, "rings": {unix.SYS_IO_URING_SETUP, 1},
		"connect": {unix.SYS_CONNECT, 3}, "bind": {unix.SYS_BIND, 3}, "memfd": {unix.SYS_MEMFD_CREATE, 0},
		"descriptor": {unix.SYS_PIDFD_GETFD, 0}, "keys": {unix.SYS_KEYCTL, 0}, "seccomp": {unix.SYS_SECCOMP, 0},
	} {
		_, _, errno := unix.Syscall(number[0], number[1], 0, 0)
		fmt.Println(what, errno != unix.EPERM)
	}
}
