package main

import (
	"os"
	"strconv"
	"strings"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// What unpacking needs of root: nothing by which a process leaves the directory that it is locked into.
var unpackRights = []uint{
	unix.CAP_CHOWN, unix.CAP_DAC_OVERRIDE, unix.CAP_FOWNER, unix.CAP_FSETID, unix.CAP_MKNOD, unix.CAP_SETFCAP,
	unix.CAP_SYS_ADMIN, // attributes of the kernel's overlay
}

// lockInto makes the directory fd this process's root, for good.
func lockInto(fd int) error {
	if err := syscall.Fchdir(fd); err != nil {
		return newFault("failed", "enter the layer's directory: %v", err)
	}
	if err := syscall.Chroot("."); err != nil {
		return newFault("failed", "confine the puller to the layer's directory: %v", err)
	}
	if err := syscall.Close(fd); err != nil {
		return err
	}
	if err := keepRights(unpackRights); err != nil {
		return newFault("failed", "give up root's rights: %v", err)
	}
	return noNewRights()
}

func keepRights(kept []uint) error {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	for _, right := range kept {
		bit := uint32(1) << (right % 32)
		data[right/32].Effective |= bit
		data[right/32].Permitted |= bit
	}
	_, _, errno := syscall.AllThreadsSyscall(unix.SYS_CAPSET,
		uintptr(unsafe.Pointer(&header)), uintptr(unsafe.Pointer(&data[0])), 0)
	if errno != 0 {
		return errno
	}
	return nil
}

func noNewRights() error {
	if _, _, errno := syscall.AllThreadsSyscall6(unix.SYS_PRCTL, unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0, 0); errno != 0 {
		return newFault("failed", "give up every way to gain rights: %v", errno)
	}
	return nil
}

// idRange is a run of numbers that exist in this user namespace.
type idRange struct{ first, count uint64 }

func mappedIDs(table string) ([]idRange, error) {
	text, err := os.ReadFile(table)
	if err != nil {
		return nil, err
	}
	var ranges []idRange
	for line := range strings.Lines(string(text)) {
		fields := strings.Fields(line)
		if len(fields) != 3 {
			continue
		}
		first, err := strconv.ParseUint(fields[0], 10, 64)
		if err != nil {
			return nil, err
		}
		count, err := strconv.ParseUint(fields[2], 10, 64)
		if err != nil {
			return nil, err
		}
		ranges = append(ranges, idRange{first, count})
	}
	return ranges, nil
}

func isMapped(ranges []idRange, id int) bool {
	for _, each := range ranges {
		if id >= 0 && uint64(id) >= each.first && uint64(id)-each.first < each.count {
			return true
		}
	}
	return false
}
