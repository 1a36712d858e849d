package home

import (
	"net/netip"
	"slices"
	"sync/atomic"
	"time"

	"atoll/policy"
	"atoll/relay/control"
	"atoll/relay/resolve"
)

// Kernel knows this host's own addresses.
type Kernel interface {
	Has(address netip.Addr) (bool, error)
}

// outside is what all guests of a home have in common on their way out.
type outside struct {
	kernel   Kernel
	log      func(text string)
	client   *resolve.Client
	resolver *resolve.Resolver
	settings atomic.Pointer[settings]
}

type settings struct {
	nameservers []netip.AddrPort
	patience    time.Duration
	foreign     []netip.Prefix
}

func newOutside(kernel Kernel, log func(text string)) *outside {
	made := &outside{kernel: kernel, log: log}
	made.settings.Store(&settings{})
	made.client = &resolve.Client{Nameservers: func() []netip.AddrPort { return made.settings.Load().nameservers }}
	made.resolver = resolve.NewResolver(made.client, time.Now)
	return made
}

func (o *outside) set(content *control.Settings) error {
	patience, err := content.Patience()
	if err != nil {
		return err
	}
	o.settings.Store(&settings{content.Nameservers, patience, content.Foreign})
	return nil
}

// owns tells whether an address, or the IPv4 address that it carries, belongs to this host.
func (o *outside) owns(address netip.Addr) (bool, error) {
	plain := policy.Plain(address)
	if slices.ContainsFunc(o.settings.Load().foreign, func(each netip.Prefix) bool { return each.Contains(plain) }) {
		return false, nil
	}
	return o.kernel.Has(plain)
}

// isOwn takes an address for this host's own if the kernel does not tell: then it is not connected to.
func (o *outside) isOwn(address netip.Addr) bool {
	isOwn, err := o.owns(address)
	if err != nil {
		o.log("the kernel does not tell this host's addresses: " + err.Error())
		return true
	}
	return isOwn
}
