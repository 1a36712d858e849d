package main

import (
	"context"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"syscall"
)

// Addresses that carry an IPv4 address in their last four bytes, besides the mapped ones.
var translated = netip.MustParsePrefix("64:ff9b::/96")

// outside reaches no address of the refused networks. What is judged is the address that is about to be connected to,
// of each connection: a name that is resolved anew, a redirect and a server for tokens lead to no other either.
type outside struct {
	refused []netip.Prefix
	proxy   func(*http.Request) (*url.URL, error)
	direct  http.RoundTripper
	proxied http.RoundTripper
}

// newOutside makes a transport that refuses those networks and the addresses of this machine.
func newOutside(refused []netip.Prefix, made func(*net.Dialer) *http.Transport) (*outside, error) {
	o := &outside{refused: refused, proxy: http.ProxyFromEnvironment}
	own, err := net.InterfaceAddrs()
	if err != nil {
		return nil, newFault("failed", "this machine's addresses cannot be read: %v", err)
	}
	for _, each := range own {
		if prefix, err := netip.ParsePrefix(each.String()); err == nil {
			address := prefix.Addr().WithZone("")
			o.refused = append(o.refused, netip.PrefixFrom(address, address.BitLen()))
		}
	}
	direct := made(&net.Dialer{Timeout: connectTimeout, Control: o.control})
	direct.Proxy = nil
	o.direct, o.proxied = direct, made(&net.Dialer{Timeout: connectTimeout})
	return o, nil
}

// RoundTrip sends a request on its own way, or by the proxy that this machine's owner has chosen for it.
//
// A proxy resolves names itself, so it has to refuse its own targets. This code can only avoid asking it for a server that
// this machine already knows to be inside.
func (o *outside) RoundTrip(request *http.Request) (*http.Response, error) {
	proxy, err := o.proxy(request)
	if err != nil {
		return nil, err
	}
	if proxy == nil {
		return o.direct.RoundTrip(request)
	}
	if o.isNamedInside(request.Context(), request.URL.Hostname()) {
		return nil, insideFault()
	}
	return o.proxied.RoundTrip(request)
}

func (o *outside) control(_, address string, _ syscall.RawConn) error {
	found, err := netip.ParseAddrPort(address)
	if err != nil {
		return err
	}
	if o.isInside(found.Addr()) {
		return insideFault()
	}
	return nil
}

// insideFault does not tell the address: who may not reach it need not learn it.
func insideFault() error {
	return newFault("inside", "its registry, or a server that the registry names, is on this machine or in its network")
}

func (o *outside) isInside(address netip.Addr) bool {
	address = address.Unmap().WithZone("")
	if translated.Contains(address) {
		whole := address.As16()
		address = netip.AddrFrom4([4]byte(whole[12:]))
	}
	for _, network := range o.refused {
		if network.Contains(address) {
			return true
		}
	}
	return false
}

func (o *outside) isNamedInside(ctx context.Context, host string) bool {
	if address, err := netip.ParseAddr(host); err == nil {
		return o.isInside(address)
	}
	labels := strings.Split(strings.TrimRight(host, "."), ".")
	if last := labels[len(labels)-1]; last == "" || last[0] >= '0' && last[0] <= '9' {
		// An address in one of the old ways to write it, like 127.1: a proxy may know them.
		return true
	}
	// Without names of its own a machine behind a proxy leaves them to it.
	found, _ := net.DefaultResolver.LookupNetIP(ctx, "ip", host)
	for _, address := range found {
		if o.isInside(address) {
			return true
		}
	}
	return false
}
