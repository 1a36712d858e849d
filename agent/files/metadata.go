package files

import (
	"os"
	"strings"
	"syscall"
	"unsafe"
)

const (
	metadataPrefix = "user.e2b."
	attributesMost = 64 << 10
)

// Metadata are the extended attributes of a file that clients attached to it; nil when there are none.
func Metadata(path string) map[string]string {
	var found map[string]string
	for _, name := range attributes(path) {
		value := make([]byte, attributesMost)
		count, err := syscall.Getxattr(path, name, value)
		if err != nil {
			continue
		}
		if found == nil {
			found = map[string]string{}
		}
		found[strings.TrimPrefix(name, metadataPrefix)] = string(value[:count])
	}
	return found
}

func attributes(path string) []string {
	size, err := syscall.Listxattr(path, nil)
	if err != nil || size == 0 {
		return nil
	}
	names := make([]byte, size+attributesMost)
	size, err = syscall.Listxattr(path, names)
	if err != nil {
		return nil
	}
	return ours(names[:size])
}

func ours(names []byte) []string {
	var found []string
	for name := range strings.SplitSeq(string(names), "\x00") {
		if strings.HasPrefix(name, metadataPrefix) {
			found = append(found, name)
		}
	}
	return found
}

// SetMetadata replaces what is attached to an open file that was made by Create.
//
// It never uses the file's path, where another file may lie by now: it works with the agent's rights.
func SetMetadata(file *os.File, metadata map[string]string) error {
	for _, name := range attributesOf(file) {
		if _, kept := metadata[strings.TrimPrefix(name, metadataPrefix)]; !kept {
			if err := removeAttribute(file, name); err != nil {
				return err
			}
		}
	}
	for key, value := range metadata {
		if err := setAttribute(file, metadataPrefix+key, value); err != nil {
			return err
		}
	}
	return nil
}

func attributesOf(file *os.File) []string {
	names := make([]byte, attributesMost)
	size, _, errno := syscall.Syscall(syscall.SYS_FLISTXATTR, file.Fd(),
		uintptr(unsafe.Pointer(&names[0])), uintptr(len(names)))
	if errno != 0 {
		return nil
	}
	return ours(names[:size])
}

func removeAttribute(file *os.File, name string) error {
	key, err := syscall.BytePtrFromString(name)
	if err != nil {
		return err
	}
	_, _, errno := syscall.Syscall(syscall.SYS_FREMOVEXATTR, file.Fd(), uintptr(unsafe.Pointer(key)), 0)
	if errno != 0 && errno != syscall.ENODATA {
		return errno
	}
	return nil
}

func setAttribute(file *os.File, name, value string) error {
	key, err := syscall.BytePtrFromString(name)
	if err != nil {
		return err
	}
	bytes := append([]byte(value), 0)
	_, _, errno := syscall.Syscall6(syscall.SYS_FSETXATTR, file.Fd(), uintptr(unsafe.Pointer(key)),
		uintptr(unsafe.Pointer(&bytes[0])), uintptr(len(value)), 0, 0)
	if errno != 0 {
		return errno
	}
	return nil
}
