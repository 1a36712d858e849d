package dial

import (
	"context"
	"errors"
	"math"
	"net"
	"net/netip"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// serving listens at an address of the loopback interface.
func serving(t *testing.T, address string) (*net.TCPListener, netip.AddrPort) {
	t.Helper()
	listener, err := net.Listen("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close() })
	return listener.(*net.TCPListener), listener.Addr().(*net.TCPAddr).AddrPort()
}

func option(t *testing.T, conn *net.TCPConn, level, name int) int {
	t.Helper()
	raw, err := conn.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	value := 0
	if controlled := raw.Control(func(fd uintptr) { value, err = unix.GetsockoptInt(int(fd), level, name) }); controlled != nil {
		t.Fatal(controlled)
	}
	if err != nil {
		t.Fatal(err)
	}
	return value
}

func TestAConnectionIsTunedAndResetWhenItIsClosed(t *testing.T) {
	for _, at := range []string{"127.0.0.1:0", "[::1]:0"} {
		listener, address := serving(t, at)
		conn, err := To(context.Background(), address, Patience)
		if err != nil {
			t.Fatal(err)
		}
		server, err := listener.AcceptTCP()
		if err != nil {
			t.Fatal(err)
		}
		defer server.Close()
		for _, each := range []struct{ level, name, want int }{
			{unix.IPPROTO_TCP, unix.TCP_NODELAY, 1},
			{unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, math.MaxInt32},
			{unix.SOL_SOCKET, unix.SO_KEEPALIVE, 0},
			{unix.SOL_SOCKET, unix.SO_LINGER, 1},
			{unix.SOL_SOCKET, unix.SO_PROTOCOL, unix.IPPROTO_TCP},
		} {
			if got := option(t, conn, each.level, each.name); got != each.want {
				t.Errorf("the option %d of %d is %d, not %d", each.name, each.level, got, each.want)
			}
		}
		conn.Close()
		server.SetReadDeadline(time.Now().Add(10 * time.Second))
		if _, err := server.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("the end is %v, no reset", err)
		}
	}
}

func TestTheKernelSendsAgainEverySecondWhereItCan(t *testing.T) {
	_, address := serving(t, "127.0.0.1:0")
	conn, err := To(context.Background(), address, Patience)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	raw, _ := conn.SyscallConn()
	var able error
	raw.Control(func(fd uintptr) {
		able = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_RTO_MAX_MS, longestPauseMS)
	})
	if able != nil {
		t.Skip("this kernel has no such option")
	}
	if got := option(t, conn, unix.IPPROTO_TCP, unix.TCP_RTO_MAX_MS); got != longestPauseMS {
		t.Errorf("the longest pause is %d ms", got)
	}
}

func TestAnIPv4AddressInIPv6IsConnectedTo(t *testing.T) {
	_, address := serving(t, "127.0.0.1:0")
	mapped := netip.AddrPortFrom(netip.AddrFrom16(address.Addr().As16()), address.Port())
	conn, err := To(context.Background(), mapped, Patience)
	if err != nil {
		t.Fatal(err)
	}
	conn.Close()
}

func TestAFailureSaysWhyAndNotWhere(t *testing.T) {
	listener, address := serving(t, "127.0.0.1:0")
	listener.Close()
	for to, want := range map[netip.AddrPort]error{
		address: syscall.ECONNREFUSED,
		netip.MustParseAddrPort("255.255.255.255:80"): syscall.ENETUNREACH,
	} {
		_, err := To(context.Background(), to, Patience)
		var number syscall.Errno
		if !errors.As(err, &number) || want == syscall.ECONNREFUSED && !errors.Is(err, want) {
			t.Errorf("%v is %v", to, err)
		}
		if strings.Contains(err.Error(), to.Addr().String()) {
			t.Errorf("%v tells the address", err)
		}
	}
}

// full is the address of a listener that answers no more: its queue is full.
func full(t *testing.T) netip.AddrPort {
	t.Helper()
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(fd) })
	if err := unix.Bind(fd, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		t.Fatal(err)
	}
	if err := unix.Listen(fd, 0); err != nil {
		t.Fatal(err)
	}
	name, err := unix.Getsockname(fd)
	if err != nil {
		t.Fatal(err)
	}
	address := netip.AddrPortFrom(netip.MustParseAddr("127.0.0.1"), uint16(name.(*unix.SockaddrInet4).Port))
	for range 4 {
		conn, err := net.DialTimeout("tcp", address.String(), 300*time.Millisecond)
		if err != nil {
			return address
		}
		t.Cleanup(func() { conn.Close() })
	}
	t.Skip("the queue of a listener is never full here")
	return address
}

func TestAServerThatSaysNothingIsWaitedForOnlySoLong(t *testing.T) {
	_, err := To(context.Background(), full(t), 100*time.Millisecond)
	if !errors.Is(err, ErrSilent) {
		t.Errorf("it fails with %v", err)
	}
}

func TestAWaitEndsWithItsContext(t *testing.T) {
	why := errors.New("the policy forbids it")
	ctx, cancel := context.WithCancelCause(context.Background())
	address := full(t)
	time.AfterFunc(50*time.Millisecond, func() { cancel(why) })
	if _, err := To(ctx, address, Patience); !errors.Is(err, why) {
		t.Errorf("it fails with %v", err)
	}
}

func TestAnAcceptedConnectionIsTunedToo(t *testing.T) {
	listener, address := serving(t, "127.0.0.1:0")
	conn, err := net.Dial("tcp", address.String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	guest, err := listener.AcceptTCP()
	if err != nil {
		t.Fatal(err)
	}
	raw, err := guest.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	if err := Tune(raw); err != nil {
		t.Fatal(err)
	}
	guest.Close()
	if Tune(raw) == nil {
		t.Error("a closed one is tuned")
	}
	conn.SetReadDeadline(time.Now().Add(10 * time.Second))
	if _, err := conn.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("the end is %v, no reset", err)
	}
}
