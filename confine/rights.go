// Package confine gives up what a program does not need, for good.
package confine

import (
	"fmt"
	"os"
	"strconv"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// AtStart hides the memory of this process, and closes every way to gain rights.
func AtStart() error {
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		return fmt.Errorf("hide the memory: %w", err)
	}
	if _, _, errno := syscall.AllThreadsSyscall6(unix.SYS_PRCTL, unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0, 0); errno != 0 {
		return fmt.Errorf("give up every way to gain rights: %w", errno)
	}
	none := unix.Rlimit{}
	if err := unix.Setrlimit(unix.RLIMIT_CORE, &none); err != nil {
		return fmt.Errorf("turn core files off: %w", err)
	}
	return nil
}

// CloseOthers closes the descriptors that were inherited, but the standard ones and the channel.
func CloseOthers(channel int) error {
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return fmt.Errorf("list the open descriptors: %w", err)
	}
	for _, entry := range entries {
		fd, err := strconv.Atoi(entry.Name())
		if err != nil || fd <= 2 || fd == channel || isRuntimes(fd) {
			continue
		}
		// The one that listed the others is closed already.
		_ = unix.Close(fd)
	}
	return nil
}

// isRuntimes tells whether Go's runtime opened it for its own waiting. The files of the control group that it holds as well
// are never read again, as it does not follow changes of them (updatemaxprocs=0).
func isRuntimes(fd int) bool {
	link, err := os.Readlink("/proc/self/fd/" + strconv.Itoa(fd))
	return err == nil && (link == "anon_inode:[eventpoll]" || link == "anon_inode:[eventfd]")
}

// Allow is what a program keeps beside the descriptors that it has open.
type Allow struct {
	// Network lets it connect by TCP and UDP and accept on listeners that it gets. It may not bind or listen itself.
	Network bool
	// Accept lets it accept on listeners that it gets.
	Accept bool
}

// Confine gives up users, capabilities, files and system calls. It returns what it could turn on: a kernel may lack
// landlock, and only root can become someone else.
func Confine(user int, allow Allow) ([]string, error) {
	var on []string
	if user >= 0 && os.Geteuid() == 0 {
		if err := become(user); err != nil {
			return nil, fmt.Errorf("become user %d: %w", user, err)
		}
		on = append(on, "user")
	}
	if err := dropCapabilities(); err != nil {
		return nil, fmt.Errorf("give up capabilities: %w", err)
	}
	on = append(on, "capabilities")
	// Changing the user may have made the memory readable again.
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		return nil, err
	}
	locked, err := landlock(allow)
	if err != nil {
		return nil, fmt.Errorf("lock files away: %w", err)
	}
	if locked {
		on = append(on, "landlock")
	}
	if err := seccomp(allow); err != nil {
		return nil, fmt.Errorf("give up system calls: %w", err)
	}
	return append(on, "seccomp"), nil
}

func become(user int) error {
	if err := syscall.Setgroups(nil); err != nil {
		return err
	}
	if err := syscall.Setresgid(user, user, user); err != nil {
		return err
	}
	return syscall.Setresuid(user, user, user)
}

func dropCapabilities() error {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var none [2]unix.CapUserData
	_, _, errno := syscall.AllThreadsSyscall(unix.SYS_CAPSET,
		uintptr(unsafe.Pointer(&header)), uintptr(unsafe.Pointer(&none[0])), 0)
	if errno != 0 {
		return errno
	}
	return nil
}
