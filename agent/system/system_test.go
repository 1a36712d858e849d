package system

import (
	"crypto/ed25519"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func certificate(t *testing.T) string {
	public, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1)}
	raw, err := x509.CreateCertificate(rand.Reader, template, template, public, private)
	if err != nil {
		t.Fatal(err)
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: raw}))
}

func read(t *testing.T, s *System, path string) string {
	t.Helper()
	text, err := os.ReadFile(s.path(path))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestAGuestKnowsItsNameAndItsResolver(t *testing.T) {
	s := &System{Root: t.TempDir()}
	name, machine, server := "tide", "0123", "10.254.0.1"
	identity := Identity{Hostname: &name, MachineID: &machine, Nameserver: &server}
	for range 2 {
		if err := s.Apply(identity); err != nil {
			t.Fatal(err)
		}
		if err := s.SetGeneration(3); err != nil {
			t.Fatal(err)
		}
	}
	for path, wanted := range map[string]string{
		"/etc/hostname": "tide\n", "/etc/machine-id": "0123\n", "/run/atoll/generation": "3\n",
	} {
		if got := read(t, s, path); got != wanted {
			t.Errorf("%s: %q", path, got)
		}
	}
	if s.MachineID() != machine {
		t.Error(s.MachineID())
	}
	if !strings.HasPrefix(read(t, s, "/etc/resolv.conf"), "nameserver 10.254.0.1\n") {
		t.Error(read(t, s, "/etc/resolv.conf"))
	}
}

func TestTheGenerationsFileStaysTheSameFile(t *testing.T) {
	s := &System{Root: t.TempDir()}
	var files []os.FileInfo
	for _, generation := range []int64{9, 10} {
		if err := s.SetGeneration(generation); err != nil {
			t.Fatal(err)
		}
		info, err := os.Stat(s.path(GenerationFile))
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, info)
	}
	if !os.SameFile(files[0], files[1]) || read(t, s, GenerationFile) != "10\n" {
		t.Fatal(read(t, s, GenerationFile))
	}
}

func TestTheEnvironmentIsReplacedAsAWhole(t *testing.T) {
	s := &System{Root: t.TempDir()}
	for _, env := range []map[string]string{{"A": "1", "B": "2"}, {"C": "a\"b"}} {
		if err := s.SetEnvironment(env); err != nil {
			t.Fatal(err)
		}
	}
	if got := read(t, s, EnvironmentFile); got != `{"C":"a\"b"}` {
		t.Fatal(got)
	}
}

func TestHostsKeepsTheLinesOfOthers(t *testing.T) {
	s := &System{Root: t.TempDir()}
	for _, name := range []string{"first", "second"} {
		if err := s.Apply(Identity{Hostname: &name}); err != nil {
			t.Fatal(err)
		}
		if name == "first" {
			text := read(t, s, "/etc/hosts") + "192.0.2.7 mine"
			if err := os.WriteFile(s.path("/etc/hosts"), []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
	text := read(t, s, "/etc/hosts")
	if strings.Contains(text, "first") || strings.Count(text, "127.0.0.1") != 1 ||
		!strings.Contains(text, "127.0.1.1\tsecond") || !strings.Contains(text, "192.0.2.7 mine\n") {
		t.Fatal(text)
	}
}

func TestABadHostNameIsRefused(t *testing.T) {
	s := &System{Root: t.TempDir()}
	for _, name := range []string{"", "a b", strings.Repeat("n", 65), "a\nb"} {
		if err := s.Apply(Identity{Hostname: &name}); err == nil {
			t.Errorf("%q passed", name)
		}
	}
}

func TestCertificatesAreAddedOnceAndReplaced(t *testing.T) {
	s := &System{Root: t.TempDir()}
	path := s.path(debianBundle)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte("their own"), 0o644); err != nil {
		t.Fatal(err)
	}
	first, second := certificate(t), certificate(t)
	for _, text := range []string{first, second} {
		env, err := s.TrustCA(text)
		if err != nil || env["SSL_CERT_FILE"] != debianBundle || env["NODE_EXTRA_CA_CERTS"] != ownCA {
			t.Fatalf("%v, %v", env, err)
		}
		if env, err := s.TrustCA(text); env != nil || err != nil {
			t.Fatalf("again: %v, %v", env, err)
		}
	}
	if got := read(t, s, debianBundle); got != "their own\n"+caBegin+second+caEnd {
		t.Fatal(got)
	}
	if read(t, s, ownCA) != second {
		t.Fatal("the certificate has no file of its own")
	}
	if env, err := s.TrustCA(""); err != nil || len(env) != 0 {
		t.Fatal(env, err)
	}
	if got := read(t, s, debianBundle); got != "their own\n" {
		t.Fatal(got)
	}
	if _, err := s.TrustCA("rubbish"); err == nil {
		t.Fatal("rubbish passed")
	}
}
