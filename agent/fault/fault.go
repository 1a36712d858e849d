// Package fault holds the one error type that leaves the agent.
package fault

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"syscall"
)

// Code names a kind of failure; both protocols derive their own status from it.
type Code string

// The codes of the protocol.
const (
	Invalid         Code = "invalid"
	UserUnknown     Code = "user_unknown"
	CwdMissing      Code = "cwd_missing"
	ProgramMissing  Code = "program_missing"
	ShellMissing    Code = "shell_missing"
	Denied          Code = "denied"
	ProcessNotFound Code = "process_not_found"
	FileMissing     Code = "file_missing"
	FileTaken       Code = "file_taken"
	NotADirectory   Code = "not_a_directory"
	IsADirectory    Code = "is_a_directory"
	FileFailed      Code = "file_failed"
	NoSpace         Code = "no_space"
	Busy            Code = "busy"
	ServiceMissing  Code = "service_missing"
	Internal        Code = "internal"
)

// Fault is a failure with its code.
type Fault struct {
	Code    Code
	Message string
}

func (f *Fault) Error() string { return f.Message }

// New makes a fault.
func New(code Code, format string, args ...any) *Fault {
	return &Fault{Code: code, Message: fmt.Sprintf(format, args...)}
}

// Of turns any error into a fault; one that already is a fault stays as it is.
func Of(err error) *Fault {
	var f *Fault
	if errors.As(err, &f) {
		return f
	}
	return &Fault{Code: codeOf(err), Message: err.Error()}
}

func codeOf(err error) Code {
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return FileMissing
	case errors.Is(err, fs.ErrExist), errors.Is(err, syscall.ENOTEMPTY):
		return FileTaken
	case errors.Is(err, fs.ErrPermission), errors.Is(err, syscall.EROFS):
		return Denied
	case errors.Is(err, syscall.ENOTDIR):
		return NotADirectory
	case errors.Is(err, syscall.EISDIR):
		return IsADirectory
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		return NoSpace
	case errors.Is(err, syscall.EBUSY), errors.Is(err, syscall.ETXTBSY):
		return Busy
	case errors.Is(err, syscall.EINVAL), errors.Is(err, context.Canceled):
		return Invalid
	case ofFile(err):
		// Loops of links, names that are too long, devices that fail, and all else that file systems say.
		return FileFailed
	}
	return Internal
}

// ofFile returns whether the kernel refused something that has a path.
func ofFile(err error) bool {
	named := errors.As(err, new(*fs.PathError)) || errors.As(err, new(*os.LinkError))
	return named && errors.As(err, new(syscall.Errno))
}

// Status is the HTTP status of a code.
func (c Code) Status() int {
	switch c {
	case Invalid, UserUnknown, CwdMissing, ProgramMissing, ShellMissing, FileFailed:
		return http.StatusBadRequest
	case Denied:
		return http.StatusForbidden
	case ProcessNotFound, FileMissing, ServiceMissing:
		return http.StatusNotFound
	case FileTaken, NotADirectory, IsADirectory, Busy:
		return http.StatusConflict
	case NoSpace:
		return http.StatusInsufficientStorage
	}
	return http.StatusInternalServerError
}
