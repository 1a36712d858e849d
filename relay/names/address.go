// Package names knows the names that one guest has asked for, and the addresses that it got for them.
//
// A guest whose policy has rules by name does not get the real addresses of a name. It gets one that stands for the name, so
// that the relay knows the name of each connection, whatever protocol is spoken on it.
package names

import (
	"encoding/binary"
	"net/netip"

	"atoll/policy"
)

// The first and the last address of the range stand for nothing.
const lastOffset = 1<<17 - 2

// IsSynthetic tells whether an address is one of those that stand for names.
func IsSynthetic(address netip.Addr) bool { return policy.Synthetic.Contains(address.Unmap()) }

// offsetOf is the place of an address in the range; 0 if it cannot stand for a name.
func offsetOf(address netip.Addr) uint32 {
	if !IsSynthetic(address) {
		return 0
	}
	if offset := number(address.Unmap()) - number(policy.Synthetic.Addr()); offset <= lastOffset {
		return offset
	}
	return 0
}

func addressAt(offset uint32) netip.Addr {
	var bytes [4]byte
	binary.BigEndian.PutUint32(bytes[:], number(policy.Synthetic.Addr())+offset)
	return netip.AddrFrom4(bytes)
}

func number(address netip.Addr) uint32 {
	bytes := address.As4()
	return binary.BigEndian.Uint32(bytes[:])
}
