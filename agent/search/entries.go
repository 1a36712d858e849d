package search

import (
	"encoding/binary"
	"strings"
	"syscall"
	"unsafe"
)

const (
	// As os.Open has it, without asking whether the file can be waited for.
	openFlags = syscall.O_RDONLY | syscall.O_CLOEXEC | syscall.O_NOFOLLOW | syscall.O_NONBLOCK | syscall.O_NOCTTY

	entriesBytes = 32 << 10
)

type entry struct {
	name      string
	directory bool
}

// entriesOf reads the files and directories of a directory; links, pipes, sockets and devices are left out.
func entriesOf(path string, buffer []byte, into []entry) ([]entry, error) {
	fd, err := open(path, openFlags|syscall.O_DIRECTORY)
	if err != nil {
		return into, err
	}
	defer syscall.Close(fd)
	for {
		size, err := again(func() (int, error) { return syscall.ReadDirent(fd, buffer) })
		if err != nil || size <= 0 {
			return into, err
		}
		into = parse(path, buffer[:size], into)
	}
}

// parse reads rows of struct linux_dirent64.
func parse(path string, rows []byte, into []entry) []entry {
	const (
		lengthAt = unsafe.Offsetof(syscall.Dirent{}.Reclen)
		typeAt   = unsafe.Offsetof(syscall.Dirent{}.Type)
		nameAt   = unsafe.Offsetof(syscall.Dirent{}.Name)
	)
	for len(rows) > int(nameAt) {
		length := int(binary.NativeEndian.Uint16(rows[lengthAt:]))
		if length <= int(nameAt) || length > len(rows) {
			return into
		}
		name, _, _ := strings.Cut(string(rows[nameAt:length]), "\x00")
		kind := rows[typeAt]
		rows = rows[length:]
		if name == "." || name == ".." || name == "" {
			continue
		}
		if kind == syscall.DT_UNKNOWN {
			kind = kindOf(path + "/" + name)
		}
		if kind == syscall.DT_REG || kind == syscall.DT_DIR {
			into = append(into, entry{name, kind == syscall.DT_DIR})
		}
	}
	return into
}

func kindOf(path string) byte {
	var info syscall.Stat_t
	if syscall.Lstat(path, &info) != nil {
		return syscall.DT_UNKNOWN
	}
	return byte(info.Mode & syscall.S_IFMT >> 12)
}

func open(path string, flags int) (int, error) {
	return again(func() (int, error) { return syscall.Open(path, flags, 0) })
}

// again repeats a call that a signal interrupted.
func again(call func() (int, error)) (int, error) {
	for {
		result, err := call()
		if err != syscall.EINTR {
			return result, err
		}
	}
}
