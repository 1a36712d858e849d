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
func (a *Account) Act(work func() error) error {
	if a.IsAgent() {
		return work()
	}
	if agentUID != 0 {
		return fault.New(fault.Denied, "the agent runs as user %d and cannot become %q", agentUID, a.Name)
	}
	done := make(chan error, 1)
	go a.actOnThread(work, done)
	return <-done
}

func (a *Account) actOnThread(work func() error, done chan<- error) {
	// A thread that cannot be given root's rights back stays locked, and so ends with this goroutine.
	runtime.LockOSThread()
	var result error
	defer func() {
		if trouble := recover(); trouble != nil {
			result = fmt.Errorf("panic: %v\n%s", trouble, debug.Stack())
		}
		if err := becomeRoot(); err == nil {
			runtime.UnlockOSThread()
		}
		done <- result
	}()
	if result = a.become(); result == nil {
		result = work()
	}
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
