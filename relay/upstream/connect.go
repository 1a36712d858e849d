package upstream

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"syscall"
	"time"

	"atoll/policy"
	"atoll/relay/dial"
)

// Patience is how long a proxy may take in all: it has to resolve and connect itself.
const Patience = 20 * time.Second

// Resolver asks for the addresses of names that the host connects to.
type Resolver interface {
	// Addresses are at least one, or there is an error.
	Addresses(ctx context.Context, name string) ([]netip.Addr, error)
}

// Way is what a proxy is reached by.
type Way struct {
	Resolver Resolver // resolves the proxy's own name
	// Owns tells whether an address belongs to this host. A range opens none of them, but the address alone does.
	Owns func(netip.Addr) (bool, error)
	// Ceiling must let the proxy be connected to, as any server. Nil: the sandbox's team has none.
	Ceiling  *policy.Gatekeeper
	Patience time.Duration // in all; 0 means Patience
}

// Connect has a proxy connect to a host, by its plain name or its address. The caller owns the connection. It is tuned as by
// dial.Tune, and nothing that comes from behind the proxy is taken from it.
//
// A ProxyError says that the proxy may not be where it is, cannot be reached, refuses, lies or takes too long. Another error
// says why ctx has ended, or is a fault of the caller or of this host.
func Connect(ctx context.Context, proxy *Proxy, host string, port int, way Way) (*net.TCPConn, error) {
	if err := check(host, port); err != nil {
		return nil, err
	}
	if proxy.isSealed() {
		return nil, failed("its password cannot be opened: set the policy again, with the password")
	}
	patience := way.Patience
	if patience <= 0 {
		patience = Patience
	}
	bounded, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	conn, err := way.connect(bounded, proxy, host, port)
	if err == nil {
		return conn, nil
	}
	var refused *ProxyError
	var own *hostError
	switch {
	case ctx.Err() != nil:
		return nil, context.Cause(ctx)
	case errors.As(err, &refused):
		return nil, refused
	case errors.As(err, &own):
		return nil, own
	case bounded.Err() != nil, errors.Is(err, dial.ErrSilent), errors.Is(err, syscall.ETIMEDOUT):
		return nil, failed("it gives no answer within %g s", patience.Seconds())
	}
	return nil, failed("it ends the connection")
}

// check keeps invalid destinations out of messages to a proxy.
func check(host string, port int) error {
	_, err := netip.ParseAddr(host)
	if err != nil && policy.PlainHost(host) != host || host == "" || strings.Contains(host, "%") {
		return fmt.Errorf("%.80q is neither a plain name nor an address", host)
	}
	if port < 1 || port > portLast {
		return fmt.Errorf("%d is not a port", port)
	}
	return nil
}

// hostError is a fault of this host.
type hostError struct{ error }

func (w *Way) connect(ctx context.Context, proxy *Proxy, host string, port int) (*net.TCPConn, error) {
	name := policy.PlainHost(proxy.host)
	if w.Ceiling != nil && name != "" {
		if err := allowed(w.Ceiling.Name(name)); err != nil {
			return nil, err
		}
	}
	address, err := w.address(ctx, proxy, name)
	if err != nil {
		return nil, err
	}
	if w.Ceiling != nil {
		if err := allowed(w.Ceiling.Connection(name, address.String(), proxy.port)); err != nil {
			return nil, err
		}
	}
	conn, err := reach(ctx, netip.AddrPortFrom(address, uint16(proxy.port)))
	if err != nil {
		return nil, err
	}
	if err := follow(ctx, conn, proxy, host, port); err != nil {
		conn.Close()
		return nil, err
	}
	return conn, nil
}

func allowed(found policy.Admission) error {
	if found.Action == policy.Allow {
		return nil
	}
	why := found.Reason
	if why == "" { // one that looks into requests would see none of those to the proxy
		why = "it looks into requests, which a proxy hides"
	}
	return failed("the team's ceiling does not let it be used: %s", why)
}

// address is the first one of the proxy at which it may be.
func (w *Way) address(ctx context.Context, proxy *Proxy, name string) (netip.Addr, error) {
	addresses, err := w.addresses(ctx, proxy, name)
	if err != nil {
		return netip.Addr{}, err
	}
	var refusal error
	for _, each := range addresses {
		at := policy.Plain(each)
		isOwn, err := w.Owns(at)
		if err != nil {
			return netip.Addr{}, &hostError{err}
		}
		why := policy.WhyClosed(at)
		if isOwn {
			why = "this host"
		}
		if why == "" || proxy.opens(at, isOwn) {
			return each, nil
		}
		if refusal != nil {
			continue
		}
		// Who gave a name is not told where it leads.
		place := "at an address that"
		if name == "" {
			place = "at " + each.String() + ", which"
		}
		refusal = failed("it is %s is %s, and its `addresses` do not open it", place, why)
	}
	return netip.Addr{}, refusal
}

func (w *Way) addresses(ctx context.Context, proxy *Proxy, name string) ([]netip.Addr, error) {
	if name == "" {
		address, err := netip.ParseAddr(proxy.host)
		return []netip.Addr{address}, err
	}
	found, err := w.Resolver.Addresses(ctx, name)
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	if err != nil || len(found) == 0 {
		return nil, failed("its name cannot be resolved")
	}
	return found, nil
}

// opens tells whether the proxy may be at an address that is not public. At one of this host it is only by that address alone.
func (p *Proxy) opens(address netip.Addr, isOwn bool) bool {
	return slices.ContainsFunc(p.opened, func(each netip.Prefix) bool {
		return each.Contains(address) && (!isOwn || each.IsSingleIP())
	})
}

func reach(ctx context.Context, to netip.AddrPort) (*net.TCPConn, error) {
	end, _ := ctx.Deadline()
	conn, err := dial.To(ctx, to, time.Until(end))
	var number syscall.Errno
	if errors.As(err, &number) {
		return nil, failed("it cannot be reached: %s", inWords(number))
	}
	return conn, err
}

// inWords is what the system's C library says, as the supervisor does.
func inWords(number syscall.Errno) string {
	text := number.Error()
	return strings.ToUpper(text[:1]) + text[1:]
}

// follow does the handshake until ctx has ended.
func follow(ctx context.Context, conn *net.TCPConn, proxy *Proxy, host string, port int) error {
	stop := context.AfterFunc(ctx, func() { conn.SetDeadline(time.Unix(1, 0)) })
	err := handshake(line{conn}, proxy, host, port)
	if !stop() {
		return context.Cause(ctx)
	}
	return err
}
