package confine

import (
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// What each version of landlock can forbid. Nothing of what is forbidden is excepted.
var (
	fileRights = []uint64{
		1: 1<<13 - 1, // execute … make_sym
		2: 1<<14 - 1, // refer
		3: 1<<15 - 1, // truncate
		4: 1<<15 - 1,
		5: 1<<16 - 1, // ioctl of devices
	}
	bindRights    = []uint64{4: unix.LANDLOCK_ACCESS_NET_BIND_TCP}
	connectRights = []uint64{4: unix.LANDLOCK_ACCESS_NET_CONNECT_TCP}
)

// landlock takes away all files and TCP ports, but to connect if that is allowed. It is false where the kernel has no landlock. Its scope of signals is left
// out: kernels before 6.15 apply it between threads of one process, and the filter of system calls forbids others anyway.
func landlock(allow Allow) (bool, error) {
	version, _, errno := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, 0, 0, unix.LANDLOCK_CREATE_RULESET_VERSION)
	if errno != 0 {
		return false, nil
	}
	rules := unix.LandlockRulesetAttr{
		Handled_access_fs: upTo(fileRights, int(version)), Handled_access_net: upTo(bindRights, int(version)),
	}
	if !allow.Network {
		rules.Handled_access_net |= upTo(connectRights, int(version))
	}
	size := unsafe.Sizeof(rules.Handled_access_fs)
	if version >= 4 {
		size += unsafe.Sizeof(rules.Handled_access_net)
	}
	fd, _, errno := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, uintptr(unsafe.Pointer(&rules)), size, 0)
	if errno != 0 {
		return false, errno
	}
	defer unix.Close(int(fd))
	if _, _, errno := syscall.AllThreadsSyscall(unix.SYS_LANDLOCK_RESTRICT_SELF, fd, 0, 0); errno != 0 {
		return false, errno
	}
	return true, nil
}

// upTo is the entry of the newest version that is not newer than the kernel's.
func upTo(rights []uint64, version int) uint64 {
	if version < len(rights) {
		return rights[version]
	}
	return rights[len(rights)-1]
}
