package channel

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

const contentMost = 64 << 20

// Content reads the JSON in a sealed memfd, and erases its own copy of it.
func Content(file *os.File, into any) error {
	if file == nil {
		return errors.New("the message came without its content")
	}
	defer file.Close()
	fd := int(file.Fd())
	seals, err := unix.FcntlInt(uintptr(fd), unix.F_GET_SEALS, 0)
	if err != nil || seals&(unix.F_SEAL_WRITE|unix.F_SEAL_SHRINK) != unix.F_SEAL_WRITE|unix.F_SEAL_SHRINK {
		return errors.New("the content is not in a sealed memfd")
	}
	var status unix.Stat_t
	if err := unix.Fstat(fd, &status); err != nil {
		return err
	}
	if status.Size > contentMost {
		return fmt.Errorf("the content of %d bytes is too long", status.Size)
	}
	text := make([]byte, status.Size)
	defer clear(text)
	for done := 0; done < len(text); {
		count, err := unix.Pread(fd, text[done:], int64(done))
		if err != nil {
			return err
		}
		if count == 0 {
			return errors.New("the content ends early")
		}
		done += count
	}
	if err := json.Unmarshal(text, into); err != nil {
		return fmt.Errorf("the content cannot be read: %w", err)
	}
	return nil
}

// Sealed is a memfd that nobody can change, with JSON that Content reads on the other side. The caller closes it.
func Sealed(content any) (*os.File, error) {
	text, err := json.Marshal(content)
	if err != nil {
		return nil, err
	}
	if len(text) > contentMost {
		return nil, fmt.Errorf("a content of %d bytes is too long", len(text))
	}
	fd, err := unix.MemfdCreate("content", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return nil, fmt.Errorf("make a memfd: %w", err)
	}
	made := os.NewFile(uintptr(fd), "content")
	if _, err = made.Write(text); err == nil {
		_, err = unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS,
			unix.F_SEAL_WRITE|unix.F_SEAL_SHRINK|unix.F_SEAL_GROW|unix.F_SEAL_SEAL)
	}
	if err != nil {
		made.Close()
		return nil, fmt.Errorf("fill a memfd: %w", err)
	}
	return made, nil
}
