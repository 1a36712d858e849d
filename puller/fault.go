package main

import (
	"errors"
	"fmt"
	"net/http"
	"syscall"

	"github.com/google/go-containerregistry/pkg/v1/remote/transport"
)

// fault is an error with a code that the caller makes its own error of.
type fault struct {
	Code    string `json:"code"`
	Message string `json:"message"`
}

func (f *fault) Error() string { return f.Message }

func newFault(code, format string, arguments ...any) *fault {
	return &fault{Code: code, Message: fmt.Sprintf(format, arguments...)}
}

func asFault(err error) *fault {
	var known *fault
	if errors.As(err, &known) {
		return known
	}
	if errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) {
		return newFault("no_space", "the disk is full: %v", err)
	}
	var answered *transport.Error
	if errors.As(err, &answered) {
		switch answered.StatusCode {
		case http.StatusNotFound:
			return newFault("not_found", "%v", err)
		case http.StatusUnauthorized, http.StatusForbidden:
			return newFault("denied", "%v", err)
		}
	}
	return newFault("failed", "%v", err)
}

func codeOf(err error) string { return asFault(err).Code }
