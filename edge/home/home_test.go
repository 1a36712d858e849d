package home

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
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

const waitMost = 20 * time.Second

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// place is a home that is served.
type place struct {
	t     *testing.T
	path  string
	ended chan error
}

func begin(t *testing.T) *place {
	t.Helper()
	p := &place{t: t, path: filepath.Join(t.TempDir(), "socket"), ended: make(chan error, 1)}
	listener, err := net.ListenUnix("unixpacket", &net.UnixAddr{Name: p.path, Net: "unixpacket"})
	must(t, err)
	made := New(os.Getuid(), []string{"nothing"})
	go func() { p.ended <- made.Serve(listener) }()
	return p
}

// ends waits until it has ended.
func (p *place) ends() error {
	p.t.Helper()
	select {
	case err := <-p.ended:
		return err
	case <-time.After(waitMost):
		p.t.Fatal("it does not end")
		return nil
	}
}

// owner is who talks to it.
type owner struct {
	*channel.Channel
	welcome control.Welcome
	edge    string                   // what it calls itself
	holds   map[string]models.Amount // of budgets
	known   map[string]int64
}

// own says hello, and reads what the answer is.
func (p *place) own() (*owner, error) {
	conn, err := net.DialUnix("unixpacket", nil, &net.UnixAddr{Name: p.path, Net: "unixpacket"})
	if err != nil {
		return nil, err
	}
	if err := conn.SetReadDeadline(time.Now().Add(waitMost)); err != nil {
		return nil, err
	}
	o := &owner{Channel: channel.New(conn), known: map[string]int64{}}
	if err := o.Send(control.Message{Op: "hello", Protocol: control.Protocol}); err != nil {
		return nil, err
	}
	for {
		var said struct {
			control.Welcome
			Policies map[string]int64         `json:"policies"`
			Edge     string                   `json:"edge"`
			Budgets  map[string]models.Amount `json:"budgets"`
		}
		if _, err := o.Receive(&said); err != nil {
			o.Close()
			return nil, err
		}
		for id, version := range said.Policies {
			o.known[id] = version
		}
		if said.Op == "holds" {
			o.edge, o.holds = said.Edge, said.Budgets
		}
		if said.Op == "welcome" {
			o.welcome = said.Welcome
			return o, nil
		}
	}
}

// tell sends a message with a content.
func (o *owner) tell(t *testing.T, message control.Message, content any) {
	t.Helper()
	file, err := channel.Sealed(content)
	must(t, err)
	defer file.Close()
	must(t, o.Send(message, file))
}

// hears waits for a message.
func (o *owner) hears(t *testing.T, op string) string {
	t.Helper()
	for {
		var said control.Log
		if _, err := o.Receive(&said); err != nil {
			t.Fatalf("it does not hear %s: %v", op, err)
		}
		if said.Op == op {
			return said.Text
		}
	}
}

func authority(t *testing.T) map[string]string {
	t.Helper()
	signer, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test"}, IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &signer.PublicKey, signer)
	must(t, err)
	key, err := x509.MarshalECPrivateKey(signer)
	must(t, err)
	text := func(kind string, content []byte) string {
		return string(pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: content}))
	}
	return map[string]string{
		"ca_certificate": text("CERTIFICATE", der), "ca_key": text("EC PRIVATE KEY", key), "roots": text("CERTIFICATE", der),
	}
}

// another is a process that runs until it is ended.
func another(t *testing.T) (pidfd *os.File, end func()) {
	t.Helper()
	process := exec.Command("sleep", "1000")
	must(t, process.Start())
	end = sync.OnceFunc(func() { process.Process.Kill(); process.Wait() })
	t.Cleanup(end)
	fd, err := unix.PidfdOpen(process.Process.Pid, unix.PIDFD_NONBLOCK)
	must(t, err)
	pidfd = os.NewFile(uintptr(fd), "another")
	t.Cleanup(func() { pidfd.Close() })
	return pidfd, end
}

var nothing = map[string]any{"rules": []any{}}

func TestAHomeHasOneOwnerWhoeverComesAtOnce(t *testing.T) {
	p, config := begin(t), authority(t)
	guardian, end := another(t)
	first, err := p.own()
	must(t, err)
	must(t, first.Send(control.Message{Op: "stay"}, guardian))
	first.tell(t, control.Message{Op: "config", Config: "one"}, config)
	first.hears(t, "ready")
	const sandboxes = 1200 // more than one message tells of
	for i := range sandboxes {
		first.tell(t, control.Message{Op: "policy", Sandbox: fmt.Sprint("s", i), Version: int64(i + 1)}, nothing)
	}
	must(t, first.Send(control.Message{Op: "tell"}))
	first.hears(t, "told")
	var coming sync.WaitGroup
	for range 8 {
		coming.Go(func() {
			for range 10 {
				one, err := p.own()
				if err != nil {
					continue // another one has come
				}
				_ = one.Send(control.Message{Op: "no such"})
				_ = one.Send(control.Message{Op: "tell"})
				one.Close()
			}
		})
	}
	coming.Wait()
	last, err := p.own()
	must(t, err)
	if len(last.known) != sandboxes || last.known["s7"] != 8 || last.welcome.Config != "one" {
		t.Errorf("it knows %d sandboxes, and says %+v", len(last.known), last.welcome)
	}
	last.Close()
	end()
	must(t, p.ends())
}

func TestANewOwnerHearsWhatIsHeldOfBudgets(t *testing.T) {
	p, config := begin(t), authority(t)
	one, err := p.own()
	must(t, err)
	if len(one.edge) != 16 || len(one.holds) != 0 {
		t.Errorf("at first %q holds %v", one.edge, one.holds)
	}
	one.tell(t, control.Message{Op: "config", Config: "one"}, config)
	one.hears(t, "ready")
	must(t, one.Send(control.Message{
		Op: "allot", Budget: "home", Tokens: 70, Nanos: -1, LeftNanos: -1, Limits: []string{"tokens"},
	}))
	must(t, one.Send(control.Message{Op: "tell"}))
	one.hears(t, "told")
	two, err := p.own()
	must(t, err)
	if two.edge != one.edge || len(two.holds) != 1 || two.holds["home"] != (models.Amount{Tokens: 70}) {
		t.Errorf("then %q holds %v", two.edge, two.holds)
	}
	two.Close()
	must(t, p.ends())
}

func TestAHomeGoesOnForAnotherProcess(t *testing.T) {
	p, config := begin(t), authority(t)
	guardian, end := another(t)
	for range 3 {
		one, err := p.own()
		must(t, err)
		must(t, one.Send(control.Message{Op: "stay"}, guardian))
		one.tell(t, control.Message{Op: "config", Config: "one"}, config)
		one.hears(t, "ready")
		one.Close()
	}
	end()
	must(t, p.ends())
}

func TestAnotherAuthorityIsRefusedAndOtherRootsAreTaken(t *testing.T) {
	p, config := begin(t), authority(t)
	one, err := p.own()
	must(t, err)
	for _, c := range []struct{ name, roots, want string }{
		{"one", config["roots"], ""}, {"one", authority(t)["roots"], ""}, {"one", "", ""},
		{"two", "", "config: it is of another authority"}, {"one", "none", "config: there is no certificate in roots"},
	} {
		config["roots"] = c.roots
		one.tell(t, control.Message{Op: "config", Config: c.name}, config)
		if c.want == "" {
			one.hears(t, "ready")
		} else if got := one.hears(t, "log"); got != c.want {
			t.Errorf("it says %q, not %q", got, c.want)
		}
	}
	one.Close()
	must(t, p.ends())
}

func TestNothingIsDoneBeforeThereIsAConfiguration(t *testing.T) {
	p := begin(t)
	one, err := p.own()
	must(t, err)
	for _, op := range []string{"policy", "forget", "relay", "judge", "tell"} {
		one.tell(t, control.Message{Op: op, Sandbox: "s"}, nothing)
	}
	one.tell(t, control.Message{Op: "config", Config: "one"}, authority(t))
	one.hears(t, "ready")
	for _, want := range []string{"policy s", "forget s", "relay s", "judge s", "tell s"} {
		if got := one.hears(t, "log"); got != want+": there is no configuration yet" {
			t.Errorf("it says %q", got)
		}
	}
	one.Close()
	must(t, p.ends())
	if _, err := p.own(); !errors.Is(err, unix.ECONNREFUSED) && !errors.Is(err, unix.ENOENT) {
		t.Errorf("one that has ended says %v", err)
	}
}

func TestAnAnswerToNoAskIsToldSo(t *testing.T) {
	p := begin(t)
	one, err := p.own()
	must(t, err)
	one.tell(t, control.Message{Op: "config", Config: "one"}, authority(t))
	one.hears(t, "ready")
	one.tell(t, control.Message{Op: "policy", Sandbox: "s", Version: 1}, nothing)
	must(t, one.Send(control.Message{Op: "answer", Sandbox: "s", Ask: "a", Digest: "d", Action: "allow"}))
	var said control.Unanswered
	for said.Op != "unanswered" {
		_, err := one.Receive(&said)
		must(t, err)
	}
	if said.Sandbox != "s" || said.Ask != "a" || said.Error == "" {
		t.Errorf("it says %+v", said)
	}
	one.Close()
	must(t, p.ends())
}
