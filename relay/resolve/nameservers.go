package resolve

import (
	"net/netip"
	"strings"
)

const port = 53

// ParseNameservers gives the nameservers of a resolv.conf, in the order to ask them. If it has none, the host itself is it, as
// for the C library.
func ParseNameservers(text []byte) []netip.AddrPort {
	var servers []netip.AddrPort
	for line := range strings.Lines(string(text)) {
		words := strings.Fields(line)
		if len(words) < 2 || words[0] != "nameserver" {
			continue
		}
		if address, err := netip.ParseAddr(words[1]); err == nil {
			servers = append(servers, netip.AddrPortFrom(address, port))
		}
	}
	if servers == nil {
		return []netip.AddrPort{netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), port)}
	}
	return servers
}
