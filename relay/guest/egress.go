// Package guest is the network of one sandbox: it accepts the guest's connections, decides about them, and makes them.
package guest

import (
	"context"
	"net/netip"
	"sync"

	"atoll/edge/forms"
	"atoll/policy"
	"atoll/relay/splice"
)

// Resolver resolves names for connections that the host makes.
type Resolver interface {
	Addresses(ctx context.Context, name string) ([]netip.Addr, error)
}

// Names are the names that the guest has asked for.
type Names interface {
	NameAt(address netip.Addr) (string, bool)
}

// Destination is where a guest wants to connect: a name, or an address without one.
type Destination struct {
	Name    string // empty: the guest gave an address
	Address netip.Addr
	Port    int
}

// Host is its name, or else its address.
func (d Destination) Host() string {
	if d.Name != "" {
		return d.Name
	}
	return d.Address.String()
}

// Rules are the bounds of a guest's egress.
type Rules struct {
	// Version tells them from earlier and later rules, which the edge gets too.
	Version int64
	Bounds  *policy.Bounds
	// Proxy tells one upstream proxy from another. Its names are not part of that: a connection need not end because
	// another name is added.
	Proxy string
	// Canaries are looked for in what the guest sends without the edge; nil: there are none.
	Canaries *forms.Finder
	Models   Providers
}

// nothing allows no connection.
var nothing = Rules{Bounds: &policy.Bounds{Own: policy.NewGatekeeper(policy.Terms{})}}

// Egress alone decides about the connections of one guest.
type Egress struct {
	names    Names
	resolver Resolver
	isOwn    func(netip.Addr) bool

	mu    sync.Mutex
	rules Rules
	isCut bool
}

// NewEgress allows nothing until its first rules.
func NewEgress(names Names, resolver Resolver, isOwn func(netip.Addr) bool) *Egress {
	return &Egress{names: names, resolver: resolver, isOwn: isOwn, rules: nothing}
}

// Set decides by these rules from now on.
func (e *Egress) Set(rules Rules) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.rules = rules
}

// Cut allows nothing, regardless of the rules. False lets them decide again.
func (e *Egress) Cut(isCut bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.isCut = isCut
}

// current are the rules of this moment. A decision is made by one set of them.
func (e *Egress) current() Rules {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.isCut {
		return nothing
	}
	return e.rules
}

// Bounds are the current judges. For a guest that is cut off they allow nothing.
func (e *Egress) Bounds() *policy.Bounds { return e.current().Bounds }

// destination is the guest's meaning of an address.
func (e *Egress) destination(to netip.AddrPort) Destination {
	name, _ := e.names.NameAt(to.Addr())
	return Destination{Name: name, Address: to.Addr(), Port: int(to.Port())}
}

// via is the proxy that a destination is reached through; empty: the host connects to it itself.
func (e *Egress) via(to Destination) string {
	rules := e.current()
	if rules.Proxy == "" || !rules.Bounds.Proxied(to.Name) {
		return ""
	}
	return rules.Proxy
}

// checks are those of a new connection to a name, which is empty for an address, that does not pass through the edge.
func (e *Egress) checks(name string) splice.Checks {
	var made splice.Checks
	rules := e.current()
	if name != "" && rules.Bounds.LooksInto(name) {
		made.Gate = &splice.Gate{Read: func(first []byte) splice.Look { return lookInto(first, name) }}
	}
	if rules.Bounds.Own != nil && rules.Canaries != nil {
		made.Canaries = rules.Canaries.Fresh()
	}
	return made
}

// decided is the verdict of one version's rules on a connection.
type decided struct {
	policy.Way
	version int64
}

// decide decides about a new connection. The way has no address if it is refused, or if a proxy resolves the name.
func (e *Egress) decide(ctx context.Context, to Destination) decided {
	rules := e.current()
	if admission, is := rules.toModels(to); is {
		return decided{policy.Way{Admission: admission}, rules.Version}
	}
	return decided{e.way(ctx, rules.Bounds, to), rules.Version}
}

func (e *Egress) way(ctx context.Context, bounds *policy.Bounds, to Destination) policy.Way {
	asked := policy.Asked{Name: to.Name, Port: to.Port}
	if to.Name == "" {
		asked.Addresses = []policy.Known{e.known(to.Address)}
	}
	way := bounds.Decide(asked)
	if !way.Resolve {
		return way
	}
	addresses, err := e.resolver.Addresses(ctx, to.Name)
	if err != nil {
		return policy.Way{Admission: policy.Admission{Action: policy.Deny, Reason: err.Error()}}
	}
	for _, address := range addresses {
		asked.Addresses = append(asked.Addresses, e.known(address))
	}
	return bounds.Decide(asked)
}

// again decides about a connection that is open, after the rules have changed.
func (e *Egress) again(to Destination, address string) decided {
	known := policy.Known{Address: address}
	if to.Name == "" {
		known = e.known(to.Address)
	} else if parsed, err := netip.ParseAddr(address); err == nil {
		known = e.known(parsed)
	}
	rules := e.current()
	if admission, is := rules.toModels(to); is {
		return decided{policy.Way{Admission: admission}, rules.Version}
	}
	return decided{policy.Way{Admission: rules.Bounds.Connection(to.Name, known, to.Port)}, rules.Version}
}

func (e *Egress) known(address netip.Addr) policy.Known {
	return policy.Known{Address: address.String(), Own: e.isOwn(address)}
}
