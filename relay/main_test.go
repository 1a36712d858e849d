package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/miekg/dns"

	"golang.org/x/sys/unix"

	"atoll/channel"
	"atoll/relay/control"
	"atoll/relay/home"
)

const (
	waitMost = 20 * time.Second
	nobody   = 65534
	idleKiB  = 12 << 10
	// Where this test as the relay takes every connection to have gone.
	destination = "ATOLL_TEST_DESTINATION"
)

// built has the relay as it is shipped, and this test, which can be the relay too. Both are without C, whose threads nobody
// could confine.
var built = sync.OnceValues(func() (string, error) {
	directory, err := os.MkdirTemp("", "atoll-relay")
	if err != nil {
		return "", err
	}
	for _, arguments := range [][]string{
		{"build", "-trimpath", "-ldflags=-s -w", "-o", filepath.Join(directory, shipped), "."},
		{"test", "-c", "-o", filepath.Join(directory, tested), "."},
	} {
		build := exec.Command("go", arguments...)
		build.Env = append(os.Environ(), "CGO_ENABLED=0")
		if said, err := build.CombinedOutput(); err != nil {
			return "", fmt.Errorf("%w: %s", err, said)
		}
	}
	return directory, nil
})

const shipped, tested = "atoll-relay", "test"

func program(t *testing.T, name string) string {
	t.Helper()
	directory, err := built()
	must(t, err)
	return filepath.Join(directory, name)
}

func TestMain(m *testing.M) {
	if to := os.Getenv(destination); to != "" {
		asRelay(netip.MustParseAddrPort(to))
	}
	code := m.Run()
	if directory, err := built(); err == nil {
		os.RemoveAll(directory)
	}
	os.Exit(code)
}

// asRelay is the relay, but for the kernel's redirection, which needs a namespace and its filters.
func asRelay(to netip.AddrPort) {
	parts := home.Parts{
		Original: func(*net.TCPConn) (netip.AddrPort, error) { return to, nil },
	}
	if err := run(userToBe(), 3, parts); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

func userToBe() int {
	if os.Getuid() == 0 {
		return nobody
	}
	return -1
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// child is a running relay.
type child struct {
	t       *testing.T
	process *exec.Cmd
	path    string
	said    bytes.Buffer
	ended   chan error
}

func start(t *testing.T, environment ...string) *child {
	t.Helper()
	c := &child{t: t, path: filepath.Join(t.TempDir(), "socket"), ended: make(chan error, 1)}
	c.process = exec.Command(program(t, shipped), "--user", strconv.Itoa(userToBe()))
	if environment != nil {
		c.process = exec.Command(program(t, tested))
		c.process.Env = environment
	}
	listener, err := net.ListenUnix("unixpacket", &net.UnixAddr{Name: c.path, Net: "unixpacket"})
	must(t, err)
	listener.SetUnlinkOnClose(false)
	inherited, err := listener.File()
	must(t, err)
	leaked, err := os.CreateTemp(t.TempDir(), "leaked")
	must(t, err)
	c.process.ExtraFiles, c.process.Stderr = []*os.File{inherited, leaked}, &c.said
	must(t, c.process.Start())
	inherited.Close()
	listener.Close()
	go func() { c.ended <- c.process.Wait() }()
	t.Cleanup(func() {
		select {
		case <-c.ended:
		default:
			c.process.Process.Kill()
			<-c.ended
		}
		if t.Failed() {
			t.Logf("the relay says: %s", c.said.String())
		}
	})
	return c
}

// ends waits until the relay has ended well.
func (c *child) ends() {
	c.t.Helper()
	select {
	case err := <-c.ended:
		if err != nil {
			c.t.Errorf("it ended with %v: %s", err, c.said.String())
		}
		c.ended <- err
	case <-time.After(waitMost):
		c.t.Fatal("it does not end")
	}
}

func (c *child) connect() *channel.Channel {
	c.t.Helper()
	conn, err := net.DialUnix("unixpacket", nil, &net.UnixAddr{Name: c.path, Net: "unixpacket"})
	must(c.t, err)
	must(c.t, conn.SetDeadline(time.Now().Add(waitMost)))
	made := channel.New(conn)
	c.t.Cleanup(func() { made.Close() })
	return made
}

// do asks by a channel, and reads the content of the answer.
func do(t *testing.T, by *channel.Channel, message control.Message, into any, files ...*os.File) {
	t.Helper()
	message.ID = 1
	must(t, by.Send(message, files...))
	for {
		var got control.Answer
		_, err := by.Receive(&got)
		must(t, err)
		if got.Op != "answer" {
			continue
		}
		if got.Error != "" {
			t.Fatalf("%s: %s", message.Op, got.Error)
		}
		if into != nil {
			must(t, json.Unmarshal(got.Content, into))
		}
		return
	}
}

func with(t *testing.T, by *channel.Channel, message control.Message, content string) {
	t.Helper()
	file, err := channel.Sealed(json.RawMessage(content))
	must(t, err)
	defer file.Close()
	do(t, by, message, nil, file)
}

func hello(t *testing.T, by *channel.Channel) (said control.Hello) {
	t.Helper()
	do(t, by, control.Message{Op: "hello", Protocol: control.Protocol}, &said)
	number, err := unix.PidfdOpen(os.Getpid(), unix.PIDFD_NONBLOCK)
	must(t, err)
	process := os.NewFile(uintptr(number), "process")
	defer process.Close()
	do(t, by, control.Message{Op: "stay"}, nil, process)
	return said
}

// link adds a link, whose guest knows a name and may connect to a port of this host by it.
func link(t *testing.T, by *channel.Channel, port int) (guests net.Addr, questions net.Addr) {
	t.Helper()
	listen := func() *net.TCPListener {
		made, err := net.Listen("tcp", "127.0.0.1:0")
		must(t, err)
		return made.(*net.TCPListener)
	}
	first, streams := listen(), listen()
	datagrams, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(netip.MustParseAddrPort("127.0.0.1:0")))
	must(t, err)
	var files []*os.File
	for _, each := range []interface{ File() (*os.File, error) }{first, datagrams, streams} {
		file, err := each.File()
		must(t, err)
		files = append(files, file)
	}
	names, err := os.OpenFile(filepath.Join(t.TempDir(), "names"), os.O_RDWR|os.O_CREATE, 0o600)
	must(t, err)
	do(t, by, control.Message{Op: "link", Link: "one"}, nil, append(files, names)...)
	channel.CloseAll(append(files, names))
	for _, each := range []io.Closer{first, datagrams, streams} {
		each.Close()
	}
	rules := `{"own":{"rules":[{"action":"allow","hosts":["host.atoll.internal"],"ports":[%d]},
		{"action":"allow","hosts":["api.example.com"]}]}}`
	with(t, by, control.Message{Op: "rules", Link: "one", Sandbox: "s"}, fmt.Sprintf(rules, port))
	return first.Addr(), datagrams.LocalAddr()
}

// bothAtOnePort listens for datagrams and streams. The kernel gives out ports of each by themselves.
func bothAtOnePort(t *testing.T) (net.PacketConn, net.Listener) {
	t.Helper()
	for {
		datagrams, err := net.ListenPacket("udp", "127.0.0.1:0")
		must(t, err)
		streams, err := net.Listen("tcp", datagrams.LocalAddr().String())
		if err == nil {
			return datagrams, streams
		}
		datagrams.Close()
		if !errors.Is(err, syscall.EADDRINUSE) {
			t.Fatal(err)
		}
	}
}

// nameserver knows a public address of every name, by TCP alone, and gives where it is.
func nameserver(t *testing.T) string {
	t.Helper()
	datagrams, streams := bothAtOnePort(t)
	answer := dns.HandlerFunc(func(to dns.ResponseWriter, query *dns.Msg) {
		reply := new(dns.Msg).SetReply(query)
		if reply.Truncated = to.RemoteAddr().Network() == "udp"; !reply.Truncated {
			record, err := dns.NewRR(query.Question[0].Name + " 60 IN A 203.0.113.5")
			if err == nil {
				reply.Answer = append(reply.Answer, record)
			}
		}
		_ = to.WriteMsg(reply)
	})
	for _, server := range []*dns.Server{{PacketConn: datagrams, Handler: answer}, {Listener: streams, Handler: answer}} {
		started := make(chan struct{})
		server.NotifyStartedFunc = func() { close(started) }
		go server.ActivateAndServe()
		<-started
		t.Cleanup(func() { server.Shutdown() })
	}
	return datagrams.LocalAddr().String()
}

func TestTheProgramCarriesTheTrafficOfALink(t *testing.T) {
	server, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	defer server.Close()
	port := server.Addr().(*net.TCPAddr).Port
	relay := start(t, fmt.Sprintf("%s=198.18.0.1:%d", destination, port))
	owner := relay.connect()
	hello(t, owner)
	settings := fmt.Sprintf(`{"nameservers":[%q],"foreign":["127.0.0.0/8"]}`, nameserver(t))
	with(t, owner, control.Message{Op: "settings"}, settings)
	guests, questions := link(t, owner, port)
	client := &dns.Client{Timeout: waitMost}
	reply, _, err := client.Exchange(new(dns.Msg).SetQuestion("host.atoll.internal.", dns.TypeA), questions.String())
	must(t, err)
	if len(reply.Answer) != 1 || reply.Answer[0].(*dns.A).A.String() != "198.18.0.1" {
		t.Fatalf("the guest is told %v", reply)
	}
	reply, _, err = client.Exchange(new(dns.Msg).SetQuestion("api.example.com.", dns.TypeA), questions.String())
	must(t, err)
	if len(reply.Answer) != 1 {
		t.Errorf("the guest is told %v", reply)
	}
	guest, err := net.Dial("tcp", guests.String())
	must(t, err)
	defer guest.Close()
	must(t, guest.SetDeadline(time.Now().Add(waitMost)))
	served, err := server.Accept()
	must(t, err)
	defer served.Close()
	must(t, served.SetDeadline(time.Now().Add(waitMost)))
	// More than a pump moves at once.
	sent := bytes.Repeat([]byte("atoll"), 1<<18)
	go func() {
		guest.Write(sent)
		guest.(*net.TCPConn).CloseWrite()
	}()
	if heard, err := io.ReadAll(served); err != nil || !bytes.Equal(heard, sent) {
		t.Errorf("the server hears %d bytes, %v", len(heard), err)
	}
	owner.Close() // the guest goes on
	if _, err := io.WriteString(served, "back"); err != nil {
		t.Error(err)
	}
	heard := make([]byte, 4)
	if _, err := io.ReadFull(guest, heard); err != nil || string(heard) != "back" {
		t.Errorf("the guest hears %q, %v", heard, err)
	}
	next := relay.connect()
	if said := hello(t, next); len(said.Links) != 1 || said.Links[0] != "one" {
		t.Errorf("the next owner hears %+v", said)
	}
	var owes struct{ Owes bool }
	for _, op := range []string{"hold", "watch", "probe"} { // each with calls of its own
		do(t, next, control.Message{Op: op, Link: "one"}, nil)
	}
	do(t, next, control.Message{Op: "ask", Link: "one", What: "owes"}, &owes)
	do(t, next, control.Message{Op: "end"}, nil)
	relay.ends()
	if _, err := guest.Read(heard); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("the guest's connection ended with %v", err)
	}
}

func TestTheProgramIsConfined(t *testing.T) {
	relay := start(t)
	said := hello(t, relay.connect())
	for _, each := range []string{"capabilities", "seccomp"} {
		if !strings.Contains(strings.Join(said.Confined, " "), each) {
			t.Errorf("it is confined by %v", said.Confined)
		}
	}
	at := fmt.Sprintf("/proc/%d", relay.process.Process.Pid)
	status, err := os.ReadFile(at + "/status")
	must(t, err)
	for _, line := range []string{"NoNewPrivs:\t1", "Seccomp:\t2", "CapEff:\t0000000000000000", "CapPrm:\t0000000000000000"} {
		if !bytes.Contains(status, []byte(line+"\n")) {
			t.Errorf("not so: %s", line)
		}
	}
	if os.Getuid() != 0 {
		return // its memory is hidden, and so are its descriptors
	}
	if !bytes.Contains(status, fmt.Appendf(nil, "Uid:\t%d\t%[1]d\t%[1]d\t%[1]d\n", nobody)) {
		t.Errorf("it is still root: %s", status)
	}
	opened, err := os.ReadDir(at + "/fd")
	must(t, err)
	for _, each := range opened {
		if to, _ := os.Readlink(at + "/fd/" + each.Name()); strings.Contains(to, "leaked") {
			t.Error("it has a descriptor that was leaked to it")
		}
	}
}

func TestTheProgramIsSmall(t *testing.T) {
	relay := start(t)
	owner := relay.connect()
	hello(t, owner)
	link(t, owner, 80)
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", relay.process.Process.Pid))
	must(t, err)
	found := regexp.MustCompile(`VmRSS:\s+(\d+) kB`).FindSubmatch(status)
	if found == nil {
		t.Fatal("the kernel does not say how big it is")
	}
	size, err := strconv.Atoi(string(found[1]))
	must(t, err)
	t.Logf("it has %d KiB", size)
	if size > idleKiB {
		t.Errorf("it has %d KiB", size)
	}
}

func TestTheProgramEndsWhenItIsAskedTo(t *testing.T) {
	relay := start(t)
	hello(t, relay.connect())
	must(t, relay.process.Process.Signal(syscall.SIGTERM))
	relay.ends()
}

func TestTheProgramNeedsItsSocket(t *testing.T) {
	path := program(t, shipped)
	stream, err := net.ListenUnix("unix", &net.UnixAddr{Name: filepath.Join(t.TempDir(), "socket"), Net: "unix"})
	must(t, err)
	defer stream.Close()
	wrong, err := stream.File()
	must(t, err)
	defer wrong.Close()
	for what, files := range map[string][]*os.File{"is no listener": nil, "not a SOCK_SEQPACKET": {wrong}} {
		command := exec.Command(path, "--listen", "3")
		command.ExtraFiles = files
		if said, err := command.CombinedOutput(); err == nil || !strings.Contains(string(said), what) {
			t.Errorf("it ends with %v: %s", err, said)
		}
	}
}
