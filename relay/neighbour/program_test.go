package neighbour

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"atoll/channel"
	"atoll/edge/control"
	"atoll/edge/models"
)

// program is the edge as it is shipped.
var program = sync.OnceValues(func() (string, error) {
	directory, err := os.MkdirTemp("", "atoll-edge")
	if err != nil {
		return "", err
	}
	path := filepath.Join(directory, "atoll-edge")
	build := exec.Command("go", "build", "-trimpath", "-o", path, "atoll/edge")
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

// process is an edge that runs, and the supervisor's side of its channel.
type process struct {
	t       *testing.T
	command *exec.Cmd
	link    *channel.Channel
	said    bytes.Buffer
	bills   chan models.Bill
}

// start runs an edge, which has no relay and no policy yet.
func start(t *testing.T) *process {
	t.Helper()
	path, err := program()
	must(t, err)
	where := &net.UnixAddr{Name: filepath.Join(t.TempDir(), "socket"), Net: "unixpacket"}
	listener, err := net.ListenUnix("unixpacket", where)
	must(t, err)
	defer listener.Close()
	inherited, err := listener.File()
	must(t, err)
	defer inherited.Close()
	p := &process{t: t, command: exec.Command(path), bills: make(chan models.Bill, 8)}
	p.command.ExtraFiles = []*os.File{inherited}
	p.command.Stderr = &p.said
	must(t, p.command.Start())
	t.Cleanup(func() { _ = p.command.Process.Kill() })
	conn, err := net.DialUnix("unixpacket", nil, where)
	must(t, err)
	must(t, conn.SetReadDeadline(time.Now().Add(10*time.Second)))
	p.link = channel.New(conn)
	t.Cleanup(p.kill)
	must(t, p.link.Send(control.Message{Op: "hello", Protocol: control.Protocol}))
	var welcome control.Welcome
	for welcome.Op != "welcome" { // before it, it tells what it holds
		if _, err := p.link.Receive(&welcome); err != nil || welcome.Error != "" {
			t.Fatalf("it says %+v, %v", welcome, err)
		}
	}
	certificate, key := authority(t)
	p.send(control.Message{Op: "config"}, memfd(t, map[string]string{"ca_certificate": certificate, "ca_key": key}))
	var ready control.Ready
	if _, err := p.link.Receive(&ready); err != nil || ready.Op != "ready" {
		t.Fatalf("it is not ready: %v", err)
	}
	must(t, conn.SetReadDeadline(time.Time{}))
	go p.listen()
	return p
}

// said is what the edge tells.
type said struct {
	Op     string `json:"op"`
	Text   string `json:"text"`
	Budget string `json:"budget"`
	Tokens int64  `json:"tokens"`
	ID     int64  `json:"id"`
}

// listen reads what it tells, as a supervisor does.
func (p *process) listen() {
	for {
		var text json.RawMessage
		if _, err := p.link.Receive(&text); err != nil {
			return
		}
		var told said
		_ = json.Unmarshal(text, &told)
		switch told.Op {
		case "log":
			p.t.Log("the edge: ", told.Text)
		case "need": // there is enough
			_ = p.link.Send(control.Message{
				Op: "allot", ID: told.ID, Budget: told.Budget, Tokens: told.Tokens, Nanos: -1, LeftTokens: 1000, LeftNanos: -1,
				Limits: []string{"tokens"},
			})
		case "billed":
			_ = p.link.Send(control.Message{Op: "settled", ID: told.ID})
			var bill models.Bill
			_ = json.Unmarshal(text, &bill)
			p.bills <- bill
		}
	}
}

// kill ends it as a crash does.
func (p *process) kill() {
	_ = p.command.Process.Kill()
	_ = p.command.Wait()
	p.link.Close()
}

func (p *process) send(message control.Message, file *os.File) {
	p.t.Helper()
	defer file.Close()
	must(p.t, p.link.Send(message, file))
}

// attach makes the edge and the relay neighbours.
func (p *process) attach(n *Neighbour) {
	p.t.Helper()
	ends, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	must(p.t, err)
	p.send(control.Message{Op: "relay"}, os.NewFile(uintptr(ends[1]), "theirs"))
	ours, err := channel.Open(os.NewFile(uintptr(ends[0]), "ours"))
	must(p.t, err)
	n.Attach(ours, "p")
	p.t.Cleanup(func() { ours.Close() })
}

func (p *process) policy(version int64, rules ...string) {
	p.t.Helper()
	raw := make([]json.RawMessage, len(rules))
	for i, each := range rules {
		raw[i] = json.RawMessage(each)
	}
	p.send(control.Message{Op: "policy", Sandbox: "s", Version: version}, memfd(p.t, map[string]any{"rules": raw}))
}

func authority(t *testing.T) (certificate, key string) {
	t.Helper()
	signer, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test"}, IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &signer.PublicKey, signer)
	must(t, err)
	text, err := x509.MarshalECPrivateKey(signer)
	must(t, err)
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})),
		string(pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: text}))
}

func memfd(t *testing.T, content any) *os.File {
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
