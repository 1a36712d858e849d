package leaf

import (
	"crypto/ed25519"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"strings"
	"testing"
	"time"
)

func authority(t *testing.T) *Authority {
	t.Helper()
	public, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test"}, IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Now().Add(-1000 * time.Hour), NotAfter: time.Now().Add(10000 * time.Hour),
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, public, private)
	if err != nil {
		t.Fatal(err)
	}
	key, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	made, err := NewAuthority(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
		pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: key}))
	if err != nil {
		t.Fatal(err)
	}
	return made
}

func TestACertificateIsKeptUntilItEndsSoon(t *testing.T) {
	made := authority(t)
	now := time.Now()
	at := func(name string, keep bool, later time.Duration) string {
		found, err := made.For(name, keep, now.Add(later))
		if err != nil {
			t.Fatal(err)
		}
		if !found.Leaf.NotBefore.Before(now.Add(later-6*24*time.Hour)) || found.Leaf.NotAfter.Before(now.Add(later)) {
			t.Errorf("%s is valid from %v to %v", name, found.Leaf.NotBefore, found.Leaf.NotAfter)
		}
		return found.Leaf.SerialNumber.String()
	}
	first := at("a.x", true, 0)
	if at("a.x", true, 13*24*time.Hour) != first {
		t.Error("it was made again too early")
	}
	if at("a.x", true, 15*24*time.Hour) == first {
		t.Error("it was not made again")
	}
	if at("b.x", false, 0) == at("b.x", false, 0) {
		t.Error("what is not to be kept was kept")
	}
}

func TestNamesAndAddressesOfCertificates(t *testing.T) {
	made := authority(t)
	long := strings.Repeat("a", 60) + "." + strings.Repeat("b", 60) + ".x"
	for _, name := range []string{"a.x", "192.0.2.1", "2001:db8::1", long} {
		found, err := made.For(name, true, time.Now())
		if err != nil {
			t.Fatal(err)
		}
		if err := found.Leaf.VerifyHostname(name); err != nil {
			t.Error(err)
		}
		if err := found.Leaf.CheckSignatureFrom(made.certificate); err != nil {
			t.Error(err)
		}
	}
}

func TestTheCacheIsBounded(t *testing.T) {
	made := authority(t)
	for i := range cacheMost + 10 {
		if _, err := made.For("n"+big.NewInt(int64(i)).String()+".x", true, time.Now()); err != nil {
			t.Fatal(err)
		}
	}
	if len(made.cache) != cacheMost {
		t.Errorf("there are %d", len(made.cache))
	}
}
