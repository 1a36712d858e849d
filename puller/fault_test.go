package main

import (
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"syscall"
	"testing"
)

func TestATenantReadsNothingOfThisMachinesNetwork(t *testing.T) {
	address := func(text string) net.Addr { found, _ := net.ResolveTCPAddr("tcp", text); return found }
	reset := &net.OpError{
		Op: "read", Net: "tcp", Source: address("192.0.2.2:40000"), Addr: address("203.0.113.9:443"),
		Err: os.NewSyscallError("read", syscall.ECONNRESET),
	}
	errs := map[string]error{
		"cannot be resolved": &net.OpError{Op: "dial", Net: "tcp", Err: &net.DNSError{
			Err: "no such host", Name: "registry.example", Server: "10.255.255.53:53", IsNotFound: true,
		}},
		"connection reset by peer": reset,
		"connection refused": &net.OpError{Op: "proxyconnect", Net: "tcp", Err: &net.OpError{
			Op: "dial", Net: "tcp", Addr: address("10.0.0.9:3128"), Err: os.NewSyscallError("connect", syscall.ECONNREFUSED),
		}},
		"it timed out": &net.OpError{Op: "dial", Net: "tcp", Addr: address("10.0.0.9:443"), Err: os.ErrDeadlineExceeded},
		"no addresses": fmt.Errorf("Get %q: %w", "https://registry.example/v2/", errors.New("no addresses")),
	}
	for wanted, err := range errs {
		wrapped := fmt.Errorf("Get %q: %w", "https://registry.example/v2/", err)
		_, told := (&place{Tenant: true}).told(nil, wrapped)
		said := asFault(told)
		if said.Code != "failed" || !strings.Contains(said.Message, wanted) || containsAddress(said.Message) {
			t.Errorf("%v is told as %v", wrapped, said)
		}
		if _, whole := (&place{}).told(nil, wrapped); whole != wrapped {
			t.Errorf("the machine's owner is told %v", whole)
		}
	}
	if _, err := (&place{Tenant: true}).told("it", nil); err != nil {
		t.Error(err)
	}
}

func containsAddress(text string) bool {
	for _, part := range []string{"10.", "192.0.2.", "203.0.113.", ":53", ":443"} {
		if strings.Contains(text, part) {
			return true
		}
	}
	return false
}
