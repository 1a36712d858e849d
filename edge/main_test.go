package main

import (
	"bufio"
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"maps"
	"math/big"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"atoll/channel"
	"atoll/edge/control"
)

// program is the edge as it is shipped.
var program = sync.OnceValues(func() (string, error) {
	directory, err := os.MkdirTemp("", "atoll-edge")
	if err != nil {
		return "", err
	}
	path := filepath.Join(directory, "atoll-edge")
	build := exec.Command("go", "build", "-trimpath", "-ldflags=-s -w", "-o", path, ".")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if said, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("%w: %s", err, said)
	}
	return path, nil
})

func TestMain(m *testing.M) {
	code := m.Run()
	if path, err := program(); err == nil {
		os.RemoveAll(filepath.Dir(path))
	}
	os.Exit(code)
}

// child is a running edge, with its owner's and a relay's side of their channels.
type child struct {
	t       testing.TB
	process *exec.Cmd
	path    string        // where it listens
	socket  *net.UnixConn // of the owner
	carrier *channel.Channel
	trust   *x509.CertPool
	said    bytes.Buffer
	servers map[string]string // of connections
	welcome control.Welcome
	holds   control.Holds
	ended   chan error
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func pair(t testing.TB, kind int) (net.Conn, *os.File) {
	t.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, kind|unix.SOCK_CLOEXEC, 0)
	must(t, err)
	ours, err := channel.Stream(os.NewFile(uintptr(fds[0]), "ours"))
	must(t, err)
	return ours, os.NewFile(uintptr(fds[1]), "theirs")
}

// launch starts an edge that nobody owns yet.
func launch(t testing.TB, user int) *child {
	t.Helper()
	path, err := program()
	must(t, err)
	c := &child{
		t: t, path: filepath.Join(t.TempDir(), "socket"), trust: x509.NewCertPool(), servers: map[string]string{},
		ended: make(chan error, 1),
	}
	listener, err := net.ListenUnix("unixpacket", &net.UnixAddr{Name: c.path, Net: "unixpacket"})
	must(t, err)
	listener.SetUnlinkOnClose(false)
	inherited, err := listener.File()
	must(t, err)
	secret, err := os.CreateTemp(t.TempDir(), "leaked")
	must(t, err)
	c.process = exec.Command(path, "--user", strconv.Itoa(user))
	c.process.ExtraFiles = []*os.File{inherited, secret}
	c.process.Stderr = &c.said
	must(t, c.process.Start())
	inherited.Close()
	listener.Close()
	go func() { c.ended <- c.process.Wait() }()
	t.Cleanup(func() {
		if c.process.ProcessState == nil {
			c.process.Process.Kill()
		}
	})
	return c
}

// own has this test be the owner, and returns the sandboxes that the edge knows.
func (c *child) own() map[string]int64 {
	c.t.Helper()
	conn, err := net.DialUnix("unixpacket", nil, &net.UnixAddr{Name: c.path, Net: "unixpacket"})
	must(c.t, err)
	c.socket = conn
	c.send(control.Message{Op: "hello", Protocol: control.Protocol}, nil)
	known := map[string]int64{}
	for {
		text := c.receive()
		var some control.Known
		must(c.t, json.Unmarshal(text, &some))
		if some.Op == "holds" {
			must(c.t, json.Unmarshal(text, &c.holds))
			continue
		}
		if some.Op != "known" {
			must(c.t, json.Unmarshal(text, &c.welcome))
			return known
		}
		maps.Copy(known, some.Policies)
	}
}

// start runs an edge with an owner and a relay.
func start(t testing.TB, user int, roots []byte) *child {
	t.Helper()
	c := launch(t, user)
	t.Cleanup(c.stop)
	c.own()
	certificate, key := authority(t)
	c.trust.AppendCertsFromPEM(certificate)
	c.send(control.Message{Op: "config", Config: "one"}, memfd(t, map[string]string{
		"ca_certificate": string(certificate), "ca_key": string(key), "roots": string(roots),
	}))
	var ready control.Ready
	must(t, json.Unmarshal(c.receive(), &ready))
	if ready.Op != "ready" || c.welcome.Error != "" || c.welcome.Config != "" {
		t.Fatalf("it said %+v and %+v: %s", c.welcome, ready, c.said.String())
	}
	return c
}

func (c *child) stop() {
	c.socket.Close()
	select {
	case err := <-c.ended:
		if err != nil {
			c.t.Errorf("it ended with %v: %s", err, c.said.String())
		}
	case <-time.After(5 * time.Second):
		c.t.Error("it does not end with its owner")
	}
}

func authority(t testing.TB) (certificate, key []byte) {
	t.Helper()
	signer, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test"}, IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), DNSNames: []string{"a.x"},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &signer.PublicKey, signer)
	must(t, err)
	text, err := x509.MarshalECPrivateKey(signer)
	must(t, err)
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
		pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: text})
}

func memfd(t testing.TB, content any) *os.File {
	t.Helper()
	text, err := json.Marshal(content)
	must(t, err)
	fd, err := unix.MemfdCreate("content", unix.MFD_ALLOW_SEALING|unix.MFD_CLOEXEC)
	must(t, err)
	file := os.NewFile(uintptr(fd), "content")
	_, err = file.Write(text)
	must(t, err)
	_, err = unix.FcntlInt(file.Fd(), unix.F_ADD_SEALS, unix.F_SEAL_WRITE|unix.F_SEAL_SHRINK|unix.F_SEAL_GROW)
	must(t, err)
	return file
}

func (c *child) send(message any, file *os.File) {
	c.t.Helper()
	text, err := json.Marshal(message)
	must(c.t, err)
	var rights []byte
	if file != nil {
		defer file.Close()
		rights = unix.UnixRights(int(file.Fd()))
	}
	_, _, err = c.socket.WriteMsgUnix(text, rights, nil)
	must(c.t, err)
}

func (c *child) receive() []byte {
	c.t.Helper()
	buffer := make([]byte, 64<<10)
	c.socket.SetReadDeadline(time.Now().Add(10 * time.Second))
	count, err := c.socket.Read(buffer)
	if err != nil {
		c.t.Fatalf("%v: %s", err, c.said.String())
	}
	return buffer[:count]
}

// carry joins a relay to the edge, which dials when it is asked to.
func (c *child) carry() {
	c.t.Helper()
	ours, theirs := pair(c.t, unix.SOCK_SEQPACKET)
	c.send(control.Message{Op: "relay", Pair: "first"}, theirs)
	c.carrier = channel.New(ours.(*net.UnixConn))
	c.t.Cleanup(func() { c.carrier.Close() })
	go func() {
		for {
			var asked control.Dial
			if _, err := c.carrier.Receive(&asked); err != nil {
				return
			}
			if asked.Op == "dial" {
				go c.dial(asked.ID, asked.Connection)
			}
		}
	}()
}

// hear gives what the owner is told on, until the channel ends.
func (c *child) hear() chan map[string]any {
	told := make(chan map[string]any, 1000)
	go func() {
		defer close(told)
		buffer := make([]byte, 64<<10)
		for {
			c.socket.SetReadDeadline(time.Time{})
			count, err := c.socket.Read(buffer)
			var message map[string]any
			if err != nil || count == 0 || json.Unmarshal(buffer[:count], &message) != nil {
				return
			}
			told <- message
		}
	}()
	return told
}

func (c *child) dial(id int64, connection string) {
	conn, err := net.Dial("tcp", c.servers[strings.SplitN(connection, "-", 2)[0]])
	if err != nil {
		// A relay that is gone has no edge that asks.
		_ = c.carrier.Send(control.Message{Op: "dialled", ID: id, Error: err.Error()})
		return
	}
	file, err := conn.(*net.TCPConn).File()
	conn.Close()
	if err == nil {
		_ = c.carrier.Send(control.Message{Op: "dialled", ID: id}, file)
		file.Close()
	}
}

var taken = struct {
	sync.Mutex
	count int
}{}

func (c *child) take(server, name string, port int) net.Conn {
	c.t.Helper()
	guest, theirs := pair(c.t, unix.SOCK_STREAM)
	defer theirs.Close()
	taken.Lock()
	taken.count++
	id := fmt.Sprintf("%s-%d", server, taken.count)
	taken.Unlock()
	must(c.t, c.carrier.Send(control.Message{
		Op: "take", Sandbox: "s", Version: 1, Connection: id, Name: name, Address: "192.0.2.1", Port: port, Rules: []int{0},
	}, theirs))
	return guest
}

func (c *child) policy(rules ...map[string]any) {
	c.send(control.Message{Op: "policy", Sandbox: "s", Version: 1}, memfd(c.t, map[string]any{
		"rules": rules, "secrets": map[string]string{"gh": "s3cr3t-value"},
	}))
}

func (c *child) status(field string) string {
	c.t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", c.process.Process.Pid))
	must(c.t, err)
	for line := range strings.Lines(string(text)) {
		if value, ok := strings.CutPrefix(line, field+":"); ok {
			return strings.Join(strings.Fields(value), " ")
		}
	}
	return ""
}

func TestTheProgramGivesUpItsRights(t *testing.T) {
	root := os.Geteuid() == 0
	c := start(t, 64123, nil)
	wanted := []string{"capabilities", "seccomp"}
	if root {
		wanted = append(wanted, "user")
	}
	for _, each := range wanted {
		if !slices.Contains(c.welcome.Confined, each) {
			t.Errorf("%s is not among %v", each, c.welcome.Confined)
		}
	}
	if c.welcome.Protocol != control.Protocol {
		t.Errorf("the protocol is %d", c.welcome.Protocol)
	}
	for field, want := range map[string]string{"NoNewPrivs": "1", "Seccomp": "2", "CapEff": "0000000000000000", "CapPrm": "0000000000000000"} {
		if got := c.status(field); got != want {
			t.Errorf("%s is %s", field, got)
		}
	}
	if root {
		if got := c.status("Uid"); got != "64123 64123 64123 64123" {
			t.Errorf("it is user %s", got)
		}
		if got := c.status("Groups"); got != "" {
			t.Errorf("it has the groups %s", got)
		}
		entries, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", c.process.Process.Pid))
		must(t, err)
		for _, entry := range entries {
			link, _ := os.Readlink(fmt.Sprintf("/proc/%d/fd/%s", c.process.Process.Pid, entry.Name()))
			fd, _ := strconv.Atoi(entry.Name())
			if fd > 2 && !strings.HasPrefix(link, "anon_inode:") && !strings.HasPrefix(link, "socket:") {
				t.Errorf("%s is open as %d", link, fd)
			}
		}
		// Nobody but root may look at it: it belongs to root although it is not root.
		var status unix.Stat_t
		must(t, unix.Stat(fmt.Sprintf("/proc/%d/mem", c.process.Process.Pid), &status))
		if status.Uid != 0 {
			t.Errorf("its memory belongs to %d", status.Uid)
		}
	}
}

func TestTheProgramServesWithoutItsRights(t *testing.T) {
	certificate, key := authority(t)
	c := start(t, 64123, certificate)
	pairOf, err := tls.X509KeyPair(certificate, key)
	must(t, err)
	listener, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{Certificates: []tls.Certificate{pairOf}})
	must(t, err)
	defer listener.Close()
	server := &http.Server{Handler: http.HandlerFunc(func(writer http.ResponseWriter, request *http.Request) {
		body, _ := io.ReadAll(request.Body)
		fmt.Fprintf(writer, "%d %d", len(request.Header.Get("Authorization")), len(body))
	})}
	go server.Serve(listener)
	c.servers["one"] = listener.Addr().String()
	c.carry()
	told := c.hear()
	c.policy(map[string]any{
		"action": "allow", "methods": []string{"POST"},
		"inject": []map[string]string{{"secret": "gh", "into": "header", "key": "authorization", "format": "Bearer {}"}},
	})
	var group sync.WaitGroup
	for range 8 {
		group.Add(1)
		go func() {
			defer group.Done()
			conn := tls.Client(c.take("one", "a.x", 443), &tls.Config{RootCAs: c.trust, ServerName: "a.x"})
			defer conn.Close()
			reader := bufio.NewReader(conn)
			for range 20 {
				fmt.Fprintf(conn, "POST / HTTP/1.1\r\nHost: a.x\r\nContent-Length: 100000\r\n\r\n%s", strings.Repeat("x", 100000))
				response, err := http.ReadResponse(reader, nil)
				if err != nil {
					t.Errorf("%v %s", err, c.said.String())
					return
				}
				body, err := io.ReadAll(response.Body)
				if err != nil || string(body) != "19 100000" {
					t.Errorf("%v: %s", err, body)
					return
				}
			}
			fmt.Fprint(conn, "GET / HTTP/1.1\r\nHost: a.x\r\n\r\n")
			if response, err := http.ReadResponse(reader, nil); err != nil || response.StatusCode != 403 {
				t.Error(err)
			}
		}()
	}
	group.Wait()
	allowed, denied := 0, 0
	for end := time.After(5 * time.Second); allowed < 160 || denied < 8; {
		select {
		case message := <-told:
			if message["op"] != "seen" {
				t.Errorf("it said %v", message)
				continue
			}
			for _, each := range message["entries"].([]any) {
				entry := each.(map[string]any)
				if entry["action"] == "allow" {
					allowed += int(entry["count"].(float64))
				} else {
					denied += int(entry["count"].(float64))
				}
			}
		case <-end:
			t.Fatalf("%d were allowed and %d denied", allowed, denied)
		}
	}
	if allowed != 160 || denied != 8 {
		t.Errorf("%d were allowed and %d denied", allowed, denied)
	}
	rss, _ := strconv.Atoi(strings.Fields(c.status("VmRSS"))[0])
	t.Logf("%d KiB resident after the load", rss)
}

func TestTheProgramIsSmall(t *testing.T) {
	path, err := program()
	must(t, err)
	status, err := os.Stat(path)
	must(t, err)
	if status.Size() > 12<<20 {
		t.Errorf("the program has %d bytes", status.Size())
	}
	c := start(t, 64123, nil)
	if rss, _ := strconv.Atoi(strings.Fields(c.status("VmRSS"))[0]); rss > 60<<10 {
		t.Errorf("it has %d KiB resident", rss)
	} else {
		t.Logf("%d bytes, %d KiB resident", status.Size(), rss)
	}
}
