package guest

import (
	"context"
	"errors"
	"net"
	"net/netip"

	"atoll/policy"
	"atoll/relay/dial"
)

// Providers are those of models that a guest may use through the edge, by name. Without any it has no models.
type Providers map[string]Provider

// Provider is where one is.
type Provider struct {
	Host string
	Port int
}

const modelsPort = 80

// toModels decides about a connection to the gateway of models. It is false for any other one.
func (r *Rules) toModels(to Destination) (policy.Admission, bool) {
	switch {
	case to.Name != policy.ModelsName:
		return policy.Admission{}, false
	case len(r.Models) == 0:
		return policy.Admission{Action: policy.Deny, Reason: "this sandbox has no models"}, true
	case to.Port != modelsPort:
		return policy.Admission{Action: policy.Deny, Reason: "the gateway of models has port 80 only"}, true
	}
	return policy.Admission{Action: policy.Inspect}, true
}

// HasModels tells whether the guest may use models.
func (e *Egress) HasModels() bool { return len(e.current().Models) > 0 }

// DialProvider connects to a provider of models, for a connection of the guest to their gateway. The owner says where that is:
// no rule of the guest opens it, and none shuts it. The caller owns what it returns.
//
// A *RefusedError: the guest may not use it any more.
func (g *Guest) DialProvider(ctx context.Context, id, provider string) (*net.TCPConn, error) {
	connection := g.inspected(id)
	if connection == nil {
		return nil, errEnded
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(g.ctx, cancel)()
	at, ok := g.Egress.current().Models[provider]
	if !ok || connection.Destination.Name != policy.ModelsName {
		return nil, &RefusedError{"this sandbox may not use that provider of models"}
	}
	addresses, err := g.Egress.addresses(ctx, at.Host)
	if err != nil {
		return nil, err
	}
	err = errors.New("its name leads to no address")
	for _, address := range addresses {
		var made *net.TCPConn
		if made, err = dial.To(ctx, netip.AddrPortFrom(address, uint16(at.Port)), dial.Patience); err == nil {
			return made, nil
		}
	}
	return nil, err
}

// addresses are those of a host that the owner names.
func (e *Egress) addresses(ctx context.Context, host string) ([]netip.Addr, error) {
	if address, err := netip.ParseAddr(host); err == nil {
		return []netip.Addr{address}, nil
	}
	if host == "localhost" {
		return []netip.Addr{netip.AddrFrom4([4]byte{127, 0, 0, 1}), netip.IPv6Loopback()}, nil
	}
	return e.resolver.Addresses(ctx, host)
}
