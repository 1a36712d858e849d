package home

import (
	"context"
	"errors"
	"net"
	"net/netip"

	"atoll/policy"
	"atoll/relay/dial"
	"atoll/relay/guest"
	"atoll/relay/upstream"
)

// What a guest may read. It need not know of another sandbox's state, nor where a proxy is.
var (
	errSandbox = errors.New("the sandbox is not reached")
	errProxy   = errors.New("the upstream proxy does not connect")
)

// dialer connects to where a guest's connections lead.
type dialer struct{ *Link }

var _ guest.Dialer = dialer{}

// Dial connects to another sandbox, through a proxy, or from the host.
func (d dialer) Dial(ctx context.Context, connection *guest.Connection, rule *policy.Rule) (*net.TCPConn, error) {
	to := connection.Destination
	if ref := policy.SandboxRef(to.Name); ref != "" {
		made, err := d.home.events.reach(ctx, d.id, ref, to.Port)
		return d.noted(ctx, made, err, errSandbox, connection, rule)
	}
	if connection.Via != "" {
		made, err := d.through(ctx, connection)
		return d.noted(ctx, made, err, errProxy, connection, rule)
	}
	address, err := netip.ParseAddr(connection.Address)
	if err != nil {
		return nil, errors.New("it leads to no address")
	}
	return dial.To(ctx, netip.AddrPortFrom(address, uint16(to.Port)), dial.Patience)
}

func (d dialer) through(ctx context.Context, connection *guest.Connection) (*net.TCPConn, error) {
	d.mu.Lock()
	proxy := d.proxy
	d.mu.Unlock()
	if proxy.key != connection.Via {
		return nil, errors.New("the policy has another proxy for it now")
	}
	outside := d.home.outside
	return upstream.Connect(ctx, proxy.at, connection.Destination.Host(), connection.Destination.Port, upstream.Way{
		Resolver: outside.resolver, Owns: outside.owns, Ceiling: proxy.ceiling, Patience: outside.settings.Load().patience,
	})
}

// noted tells why something refuses to connect. The guest learns only that it does.
func (d dialer) noted(
	ctx context.Context, made *net.TCPConn, err, plain error, connection *guest.Connection, rule *policy.Rule,
) (*net.TCPConn, error) {
	if err == nil {
		return made, nil
	}
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	to := connection.Destination
	d.Tell(guest.Told{Host: to.Host(), Port: to.Port, Scheme: "tcp", Admission: policy.Admission{
		Action: policy.Deny, Rule: rule, Reason: plain.Error() + ": " + err.Error(),
	}})
	return nil, plain
}
