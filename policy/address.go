package policy

import (
	"net/netip"
	"slices"
)

type closedRange struct {
	netip.Prefix
	is string
}

// What is not public. This is atoll's own list: lists of others have the ranges for documentation, into which some gateways
// resolve public names on purpose. The list of the supervisor (policy/ranges.py) is the same.
var closedRanges = []closedRange{
	{netip.MustParsePrefix("0.0.0.0/8"), "this network"},
	{netip.MustParsePrefix("10.0.0.0/8"), "private"},
	{netip.MustParsePrefix("100.64.0.0/10"), "shared by carriers and clouds"},
	{netip.MustParsePrefix("127.0.0.0/8"), "loopback"},
	{netip.MustParsePrefix("168.63.129.16/32"), "metadata"},
	{netip.MustParsePrefix("169.254.0.0/16"), "link-local and metadata"},
	{netip.MustParsePrefix("172.16.0.0/12"), "private"},
	{netip.MustParsePrefix("192.0.0.0/24"), "protocol assignments and metadata"},
	{netip.MustParsePrefix("192.168.0.0/16"), "private"},
	{netip.MustParsePrefix("198.18.0.0/15"), "benchmarks"},
	{netip.MustParsePrefix("224.0.0.0/4"), "multicast"},
	{netip.MustParsePrefix("240.0.0.0/4"), "reserved and broadcast"},
	{netip.MustParsePrefix("::/96"), "unspecified, loopback and old IPv4-compatible"},
	{netip.MustParsePrefix("::ffff:0:0:0/96"), "IPv4 in translation"},
	{netip.MustParsePrefix("64:ff9b:1::/48"), "local translation"},
	{netip.MustParsePrefix("100::/64"), "discard"},
	{netip.MustParsePrefix("2001::/23"), "protocol assignments, Teredo and benchmarks"},
	{netip.MustParsePrefix("2002::/16"), "6to4"},
	{netip.MustParsePrefix("fc00::/7"), "private and metadata"},
	{netip.MustParsePrefix("fe80::/10"), "link-local"},
	{netip.MustParsePrefix("fec0::/10"), "site-local"},
	{netip.MustParsePrefix("ff00::/8"), "multicast"},
}

// No rule opens these: nothing that a sandbox may talk to is there.
var neverOpen = []netip.Prefix{
	netip.MustParsePrefix("0.0.0.0/8"),
	netip.MustParsePrefix("127.0.0.0/8"),
	netip.MustParsePrefix("198.18.0.0/15"),
	netip.MustParsePrefix("224.0.0.0/4"),
	netip.MustParsePrefix("240.0.0.0/4"),
	netip.MustParsePrefix("::/96"),
	netip.MustParsePrefix("ff00::/8"),
}

// Synthetic has the addresses that stand for names inside a sandbox. The range is reserved for benchmarks, so no server has
// such an address.
var Synthetic = netip.MustParsePrefix("198.18.0.0/15")

// Addresses of it carry an IPv4 address in their last four bytes, as those do that netip unmaps.
var translated = netip.MustParsePrefix("64:ff9b::/96")

// PlainAddress reads an address, or the IPv4 address that it carries. An address with a zone is invalid: it means something
// on one host only.
func PlainAddress(text string) (netip.Addr, bool) {
	address, err := netip.ParseAddr(text)
	if err != nil || address.Zone() != "" {
		return netip.Addr{}, false
	}
	return Plain(address), true
}

// Plain is the IPv4 address of an address that carries one, and otherwise the address itself.
func Plain(address netip.Addr) netip.Addr {
	if translated.Contains(address) {
		bytes := address.As16()
		return netip.AddrFrom4([4]byte(bytes[12:]))
	}
	return address.Unmap()
}

// WhyClosed describes an address that is not public; it is empty for a public one.
func WhyClosed(address netip.Addr) string {
	for _, each := range closedRanges {
		if each.Contains(address) {
			return each.is
		}
	}
	return ""
}

// ParseRange reads a range of addresses, or a single address as a range.
func ParseRange(text string) (netip.Prefix, error) {
	if address, err := netip.ParseAddr(text); err == nil && address.Zone() == "" {
		return netip.PrefixFrom(address, address.BitLen()), nil
	}
	return netip.ParsePrefix(text)
}

// opens tells whether a rule that allows a range allows addresses in it that are not public: one that names them as such.
func opens(within netip.Prefix) bool {
	return !slices.ContainsFunc(neverOpen, within.Overlaps) &&
		slices.ContainsFunc(closedRanges, func(each closedRange) bool {
			return each.Bits() <= within.Bits() && each.Contains(within.Addr())
		})
}

func anyContains(ranges []netip.Prefix, address netip.Addr) bool {
	return slices.ContainsFunc(ranges, func(each netip.Prefix) bool { return each.Contains(address) })
}
