package main

import (
	"errors"
	"fmt"
	"net"
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

// told gives a result, and the error as the one who asked may read it.
func (p *place) told(result any, err error) (any, error) {
	if err == nil || !p.Tenant {
		return result, err
	}
	return result, withoutAddresses(err)
}

// withoutAddresses gives an error without the addresses of a connection's ends, and without who was asked for a name.
func withoutAddresses(err error) error {
	var known *fault
	var unresolved *net.DNSError
	var connection *net.OpError
	switch {
	case errors.As(err, &known):
		return err
	case errors.As(err, &unresolved):
		return newFault("failed", "the name %s, of its registry or of a server that the registry names, cannot be resolved",
			unresolved.Name)
	case errors.As(err, &connection):
		return newFault("failed", "the connection to its registry, or to a server that the registry names, failed: %s",
			causeOf(connection))
	}
	return err
}

func causeOf(failed *net.OpError) string {
	var number syscall.Errno
	switch {
	case failed.Timeout():
		return "it timed out"
	case errors.As(failed, &number):
		return number.Error()
	}
	return "it broke off"
}

func codeOf(err error) string { return asFault(err).Code }
