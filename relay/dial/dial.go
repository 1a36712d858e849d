// Package dial connects from the host to where guests want to go.
package dial

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"os"
	"syscall"
	"time"
)

// Patience is how long a server may take to answer.
const Patience = 10 * time.Second

// ErrSilent says that nothing answered in time.
var ErrSilent = errors.New("nothing answered in time")

// To connects to an address. The caller owns the connection, which is tuned as Tune says.
//
// Its errors have no address: who asks for a name is not told where it leads. They are ErrSilent, a syscall.Errno, or why ctx
// has ended.
func To(ctx context.Context, address netip.AddrPort, patience time.Duration) (*net.TCPConn, error) {
	dialer := net.Dialer{
		Timeout:   patience,
		KeepAlive: -1, // silence ends nothing
		Control: func(_, _ string, raw syscall.RawConn) error {
			return Tune(raw)
		},
	}
	// Its sockets lack some of the options.
	dialer.SetMultipathTCP(false)
	address = netip.AddrPortFrom(address.Addr().Unmap(), address.Port())
	network := "tcp6"
	if address.Addr().Is4() {
		network = "tcp4"
	}
	conn, err := dialer.DialContext(ctx, network, address.String())
	if err != nil {
		return nil, plain(ctx, err)
	}
	return conn.(*net.TCPConn), nil
}

// plain is the part of an error that has no address.
func plain(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	var number syscall.Errno
	switch found := errors.As(err, &number); {
	case found && number == syscall.ETIMEDOUT, errors.Is(err, os.ErrDeadlineExceeded), isTimeout(err):
		return ErrSilent
	case found:
		return number
	}
	return errors.New("connecting failed")
}

func isTimeout(err error) bool {
	var failed net.Error
	return errors.As(err, &failed) && failed.Timeout()
}
