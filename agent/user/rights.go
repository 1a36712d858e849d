package user

import (
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"syscall"
	"unsafe"

	"atoll/agent/fault"
)

var (
	agentUID       = uint32(os.Geteuid())
	agentGroups, _ = syscall.Getgroups()
)

const unchanged = ^uintptr(0)

// Agent is the account that the agent itself runs as.
func Agent() *Account { return &Account{UID: agentUID} }

// IsAgent tells whether the account is the one that the agent itself runs as.
func (a *Account) IsAgent() bool { return a.UID == agentUID }

// Credential is what a child process is started with; nil when there is nothing to change.
func (a *Account) Credential() (*syscall.Credential, error) {
	if agentUID == 0 {
		return &syscall.Credential{Uid: a.UID, Gid: a.GID, Groups: a.Groups}, nil
	}
	if a.IsAgent() {
		return nil, nil
	}
	return nil, fault.New(fault.Denied, "the agent runs as user %d and cannot become %q", agentUID, a.Name)
}

// Act runs work with the account's user id, group id and groups.
//
// Only the calling thread changes, so work must not hand file operations to other goroutines.
func (a *Account) Act(work func() error) (result error) {
	if a.IsAgent() {
		return work()
	}
	if agentUID != 0 {
		return fault.New(fault.Denied, "the agent runs as user %d and cannot become %q", agentUID, a.Name)
	}
	// On this goroutine: to start another one wakes a second thread, which costs more than most work does.
	runtime.LockOSThread()
	defer func() {
		if trouble := recover(); trouble != nil {
			result = fmt.Errorf("panic: %v\n%s", trouble, debug.Stack())
		}
		if err := becomeRoot(); err != nil {
			// A thread that cannot be given root's rights back ends with its goroutine, at once.
			runtime.Goexit()
		}
		runtime.UnlockOSThread()
	}()
	if err := a.become(); err != nil {
		return err
	}
	return work()
}

func (a *Account) become() error {
	if err := setGroups(a.Groups); err != nil {
		return fmt.Errorf("setgroups: %w", err)
	}
	if err := setEffective(syscall.SYS_SETRESGID, uintptr(a.GID)); err != nil {
		return fmt.Errorf("setresgid: %w", err)
	}
	if err := setEffective(syscall.SYS_SETRESUID, uintptr(a.UID)); err != nil {
		return fmt.Errorf("setresuid: %w", err)
	}
	return nil
}

func becomeRoot() error {
	if err := setEffective(syscall.SYS_SETRESUID, 0); err != nil {
		return err
	}
	if err := setEffective(syscall.SYS_SETRESGID, 0); err != nil {
		return err
	}
	groups := make([]uint32, len(agentGroups))
	for i, group := range agentGroups {
		groups[i] = uint32(group)
	}
	return setGroups(groups)
}

func setEffective(call, id uintptr) error {
	if _, _, errno := syscall.RawSyscall(call, unchanged, id, unchanged); errno != 0 {
		return errno
	}
	return nil
}

func setGroups(groups []uint32) error {
	var first unsafe.Pointer
	if len(groups) > 0 {
		first = unsafe.Pointer(&groups[0])
	}
	if _, _, errno := syscall.RawSyscall(syscall.SYS_SETGROUPS, uintptr(len(groups)), uintptr(first), 0); errno != 0 {
		return errno
	}
	return nil
}
