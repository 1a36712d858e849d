package own

import (
	"encoding/binary"
	"net"
	"net/netip"
	"sync"
	"testing"

	"golang.org/x/sys/unix"
)

func open(t testing.TB) *Kernel {
	t.Helper()
	kernel, err := Open()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { kernel.Close() })
	return kernel
}

func TestWhatLeadsToThisHostIsItsOwn(t *testing.T) {
	kernel := open(t)
	addresses := []string{
		// From the second of an interface's addresses on, the kernel connects from another one than it connects to.
		"127.0.0.1", "127.0.0.2", "127.9.9.9", "0.0.0.0", "::", "::1",
		"::ffff:127.0.0.1", "64:ff9b::7f00:1", "::ffff:0.0.0.0",
	}
	interfaces, err := net.InterfaceAddrs()
	if err != nil {
		t.Fatal(err)
	}
	for _, each := range interfaces {
		address, ok := netip.AddrFromSlice(each.(*net.IPNet).IP)
		if ok && !address.IsLinkLocalUnicast() {
			addresses = append(addresses, address.String())
		}
	}
	for _, each := range addresses {
		if isOwn, err := kernel.Has(netip.MustParseAddr(each)); err != nil || !isOwn {
			t.Errorf("%s: %v, %v", each, isOwn, err)
		}
	}
}

func TestWhatLeadsElsewhereOrNowhereIsNot(t *testing.T) {
	kernel := open(t)
	for _, each := range []string{"203.0.113.9", "2001:db8::9", "240.0.0.1", "ff02::1", "255.255.255.255", "64:ff9b::cb00:7109"} {
		if isOwn, err := kernel.Has(netip.MustParseAddr(each)); err != nil || isOwn {
			t.Errorf("%s: %v, %v", each, isOwn, err)
		}
	}
}

func TestWhatIsNoAddressIsRefused(t *testing.T) {
	kernel := open(t)
	for _, each := range []netip.Addr{{}, netip.MustParseAddr("fe80::1%lo")} {
		if _, err := kernel.Has(each); err == nil {
			t.Errorf("%s is judged", each)
		}
	}
}

func TestManyAskAtOnceAndEachGetsItsOwnAnswer(t *testing.T) {
	kernel := open(t)
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			address, want := netip.MustParseAddr("203.0.113.9"), i%2 == 0
			if want {
				address = netip.MustParseAddr("127.0.0.9")
			}
			for range 200 {
				if isOwn, err := kernel.Has(address); err != nil || isOwn != want {
					t.Errorf("%s: %v, %v", address, isOwn, err)
					return
				}
			}
		})
	}
	all.Wait()
}

func TestAnAnswerToAnEarlierQuestionIsSkipped(t *testing.T) {
	kernel := open(t)
	early := question(netip.MustParseAddr("127.0.0.1"), 77)
	if err := unix.Sendto(kernel.socket, early, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		t.Fatal(err)
	}
	if isOwn, err := kernel.Has(netip.MustParseAddr("203.0.113.9")); err != nil || isOwn {
		t.Errorf("%v, %v", isOwn, err)
	}
}

func TestAClosedOneAnswersWithAnError(t *testing.T) {
	kernel, err := Open()
	if err != nil {
		t.Fatal(err)
	}
	if err := kernel.Close(); err != nil {
		t.Fatal(err)
	}
	if isOwn, err := kernel.Has(netip.MustParseAddr("203.0.113.9")); err == nil {
		t.Errorf("it says %v", isOwn)
	}
}

func TestAnAnswerThatIsNotUnderstoodIsAnError(t *testing.T) {
	message := func(kind uint16, body ...byte) []byte {
		head := make([]byte, headBytes)
		binary.NativeEndian.PutUint16(head[4:], kind)
		return append(head, body...)
	}
	failed := func(why unix.Errno) []byte {
		return message(unix.NLMSG_ERROR, binary.NativeEndian.AppendUint32(nil, -uint32(why))...)
	}
	for what, each := range map[string][]byte{
		"a short error": message(unix.NLMSG_ERROR, 1), "a short route": message(unix.RTM_NEWROUTE, 2, 32),
		"another message": message(unix.RTM_NEWLINK, make([]byte, 40)...),
		"no memory":       failed(unix.ENOBUFS), "no right": failed(unix.EPERM), "no error": failed(0),
	} {
		if kind, err := route(each); err == nil {
			t.Errorf("%s is a route of kind %d", what, kind)
		}
	}
	for _, why := range []unix.Errno{unix.ENETUNREACH, unix.EHOSTUNREACH, unix.EACCES} {
		if kind, err := route(failed(why)); err != nil || kind != unix.RTN_UNREACHABLE {
			t.Errorf("%v is %d, %v", why, kind, err)
		}
	}
}

func BenchmarkHas(b *testing.B) {
	kernel := open(b)
	address := netip.MustParseAddr("127.0.0.2")
	for b.Loop() {
		if _, err := kernel.Has(address); err != nil {
			b.Fatal(err)
		}
	}
}
