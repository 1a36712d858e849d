package channel

import (
	"fmt"
	"os"
)

// Await waits until the process of a pidfd, which must not block, has ended. Closing the descriptor has it return with an error.
func Await(pidfd *os.File) error {
	raw, err := pidfd.SyscallConn()
	if err != nil {
		return err
	}
	// The descriptor becomes readable with the end of the process, and not before.
	hasEnded := false
	if err := raw.Read(func(uintptr) bool {
		was := hasEnded
		hasEnded = true
		return was
	}); err != nil {
		return fmt.Errorf("wait for the end of a process: %w", err)
	}
	return nil
}
