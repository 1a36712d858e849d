package resolve

import (
	"net/netip"
	"slices"
	"testing"
)

func TestNameserversAreReadInOrderAndCommentsLeftOut(t *testing.T) {
	text := "# nameserver 1.1.1.1\nsearch a b\nnameserver 127.0.0.53\r\nnameserver\t2001:db8::1 # ours\nnameserver x\n" +
		"nameserver\nnameservers 1.1.1.1\n  nameserver fe80::1%eth0"
	want := []netip.AddrPort{
		netip.MustParseAddrPort("127.0.0.53:53"), netip.MustParseAddrPort("[2001:db8::1]:53"),
		netip.MustParseAddrPort("[fe80::1%eth0]:53"),
	}
	if got := ParseNameservers([]byte(text)); !slices.Equal(got, want) {
		t.Error(got)
	}
}

func TestWithoutANameserverItIsThisHost(t *testing.T) {
	for _, text := range []string{"", "search example.org\n", "nameserver nowhere\n", "\xff\x00"} {
		if got := ParseNameservers([]byte(text)); len(got) != 1 || got[0] != netip.MustParseAddrPort("127.0.0.1:53") {
			t.Errorf("%q: %v", text, got)
		}
	}
}
