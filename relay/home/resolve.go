package home

import (
	"context"
	"fmt"
	"net/netip"

	"atoll/policy"
	"atoll/relay/control"
)

// resolvesMost is how many names are resolved at once for those who ask about policies.
const resolvesMost = 64

type addresses struct {
	Addresses []policy.Known `json:"addresses"`
}

// resolve answers with the addresses of a name, or with an address itself, as they are known for a guest's connection.
func (p *peer) resolve(message *control.Message) {
	found, err := p.home.known(message.Name)
	// A peer that no longer reads shows at the next message.
	_ = control.Reply(p.Channel, message.ID, addresses{found}, err)
}

func (h *Home) known(text string) ([]policy.Known, error) {
	if h.resolving.Add(1) > resolvesMost {
		h.resolving.Add(-1)
		return nil, fmt.Errorf("%d names are being resolved already", resolvesMost)
	}
	defer h.resolving.Add(-1)
	address, err := netip.ParseAddr(text)
	all := []netip.Addr{address}
	if err != nil {
		name := policy.PlainHost(text)
		if name == "" {
			return nil, fmt.Errorf("%.80q is no name and no address", text)
		}
		if all, err = h.outside.resolver.Addresses(context.Background(), name); err != nil {
			return nil, err
		}
	}
	found := make([]policy.Known, len(all))
	for i, each := range all {
		found[i] = policy.Known{Address: each.String(), Own: h.outside.isOwn(each)}
	}
	return found, nil
}
