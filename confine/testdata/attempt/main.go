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
	server, err := net.Listen("tcp", "127.0.0.1:0") // it was there before
	if err != nil {
		panic(err)
	}
	client, err := net.Dial("tcp", server.Addr().String()) // somebody waits to be accepted
	if err != nil {
		panic(err)
	}
	defer client.Close()
	if len(os.Args) > 1 {
		if err := confine.AtStart(); err != nil {
			panic(err)
		}
		allow := confine.Allow{Network: os.Args[1] == "network", Accept: os.Args[1] == "accept"}
		if _, err := confine.Confine(-1, allow); err != nil {
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
		tryNetwork(server)
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

// tryNetwork tries what is for a network.
func tryNetwork(server net.Listener) {
	tell := func(what string, err error) { fmt.Println("network: "+what, err == nil) }
	client, err := net.Dial("tcp", server.Addr().String())
	tell("connect", err)
	if err == nil {
		client.Close()
	}
	_, err = server.Accept()
	tell("accept", err)
	_, err = net.Dial("udp", "127.0.0.1:9")
	tell("datagram", err)
	ends, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	tell("pair", err)
	_, err = unix.MemfdCreate("content", 0)
	tell("memfd", err)
	_, err = unix.IoctlGetInt(ends[0], unix.SIOCOUTQ)
	tell("queue", err)
	_, err = unix.Socketpair(unix.AF_UNIX, unix.SOCK_DGRAM, 0)
	fmt.Println("pair of datagrams", err == nil)
	_, err = unix.IoctlGetInt(ends[0], unix.SIOCGSTAMP_OLD)
	fmt.Println("another ioctl", err == nil || err != unix.EPERM)
}

// tryWildly would harm this process if it worked.
func tryWildly() {
	fork := uintptr(unix.CLONE_NEWUSER | unix.CLONE_VM | unix.CLONE_VFORK)
	for what, number := range map[string][2]uintptr{
		"fork": {unix.SYS_CLONE, fork}, "fork as before": {unix.SYS_CLONE, uintptr(unix.SIGCHLD)},
		"ptrace": {unix.SYS_PTRACE, unix.PTRACE_TRACEME}, "bpf": {unix.SYS_BPF, 0}, "kexec": {unix.SYS_KEXEC_LOAD, 0},
		"namespace": {unix.SYS_UNSHARE, unix.CLONE_NEWUSER}, "mount": {unix.SYS_MOUNT, 0},
		"other memory": {unix.SYS_PROCESS_VM_READV, uintptr(os.Getppid())}, "rings": {unix.SYS_IO_URING_SETUP, 1},
		"bind": {unix.SYS_BIND, 3}, "listen again": {unix.SYS_LISTEN, 3}, "open by handle": {unix.SYS_OPEN_BY_HANDLE_AT, 0},
		"descriptor": {unix.SYS_PIDFD_GETFD, 0}, "keys": {unix.SYS_KEYCTL, 0}, "seccomp": {unix.SYS_SECCOMP, 0},
	} {
		_, _, errno := unix.Syscall(number[0], number[1], 0, 0)
		fmt.Println(what, errno != unix.EPERM)
	}
}
