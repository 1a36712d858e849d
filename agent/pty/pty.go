// Package pty makes pseudo-terminals inside the guest.
package pty

import (
	"fmt"
	"os"
	"strconv"
	"syscall"
	"unsafe"
)

// Size is a terminal's size in character cells.
type Size struct {
	Cols uint16 `json:"cols"`
	Rows uint16 `json:"rows"`
}

// Open makes a terminal of that size that belongs to the user.
//
// The master is in non-blocking mode; the caller closes both.
func Open(size Size, uid uint32) (master, slave *os.File, err error) {
	fd, err := syscall.Open("/dev/ptmx", syscall.O_RDWR|syscall.O_NOCTTY|syscall.O_CLOEXEC|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, nil, fmt.Errorf("open /dev/ptmx: %w", err)
	}
	master = os.NewFile(uintptr(fd), "/dev/ptmx")
	slave, err = openSlave(fd, uid)
	if err == nil {
		err = Resize(master, size)
	}
	if err != nil {
		master.Close()
		if slave != nil {
			slave.Close()
		}
		return nil, nil, err
	}
	return master, slave, nil
}

func openSlave(master int, uid uint32) (*os.File, error) {
	var unlock, number int32
	if err := control(uintptr(master), syscall.TIOCSPTLCK, unsafe.Pointer(&unlock)); err != nil {
		return nil, fmt.Errorf("unlock the terminal: %w", err)
	}
	if err := control(uintptr(master), syscall.TIOCGPTN, unsafe.Pointer(&number)); err != nil {
		return nil, fmt.Errorf("number of the terminal: %w", err)
	}
	path := "/dev/pts/" + strconv.Itoa(int(number))
	fd, err := syscall.Open(path, syscall.O_RDWR|syscall.O_NOCTTY|syscall.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", path, err)
	}
	if uid != uint32(os.Geteuid()) {
		// Programs such as tmux open their terminal again by its name; everything else works without.
		_ = syscall.Fchown(fd, int(uid), -1)
	}
	return os.NewFile(uintptr(fd), path), nil
}

// Resize tells the terminal its new size; the kernel sends SIGWINCH to its foreground programs.
func Resize(master *os.File, size Size) error {
	window := [4]uint16{size.Rows, size.Cols}
	if err := windowCall(master, syscall.TIOCSWINSZ, &window); err != nil {
		return fmt.Errorf("resize the terminal: %w", err)
	}
	return nil
}

// SizeOf asks for the terminal's size.
func SizeOf(master *os.File) (Size, error) {
	var window [4]uint16
	if err := windowCall(master, syscall.TIOCGWINSZ, &window); err != nil {
		return Size{}, fmt.Errorf("size of the terminal: %w", err)
	}
	return Size{Rows: window[0], Cols: window[1]}, nil
}

func windowCall(master *os.File, request uintptr, window *[4]uint16) error {
	raw, err := master.SyscallConn()
	if err != nil {
		return err
	}
	var failed error
	if err := raw.Control(func(fd uintptr) { failed = control(fd, request, unsafe.Pointer(window)) }); err != nil {
		return err
	}
	return failed
}

func control(fd, request uintptr, argument unsafe.Pointer) error {
	if _, _, errno := syscall.Syscall(syscall.SYS_IOCTL, fd, request, uintptr(argument)); errno != 0 {
		return errno
	}
	return nil
}
