// Package leaf makes the certificates that guests see.
package leaf

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"sync"
	"time"
)

const (
	backdated = 7 * 24 * time.Hour // for guests whose clock is behind
	validFor  = 28 * 24 * time.Hour
	remadeAt  = 14 * 24 * time.Hour // before the end, for guests that slept
	cacheMost = 2048
)

// Authority signs certificates with the home's CA. It is safe for concurrent use.
type Authority struct {
	certificate *x509.Certificate
	key         crypto.Signer
	leafKey     *ecdsa.PrivateKey // one for all: it never leaves this process

	mu    sync.Mutex
	cache map[string]*tls.Certificate
}

var errKey = errors.New("the CA's key is not one that signs")

// NewAuthority reads the CA from PEM.
func NewAuthority(certificate, key []byte) (*Authority, error) {
	block, _ := pem.Decode(certificate)
	if block == nil {
		return nil, errors.New("the CA's certificate is not PEM")
	}
	parsed, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return nil, fmt.Errorf("the CA's certificate cannot be read: %w", err)
	}
	signer, err := readKey(key)
	if err != nil {
		return nil, err
	}
	leafKey, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	return &Authority{
		certificate: parsed, key: signer, leafKey: leafKey, cache: map[string]*tls.Certificate{},
	}, nil
}

func readKey(text []byte) (crypto.Signer, error) {
	for block, rest := pem.Decode(text); block != nil; block, rest = pem.Decode(rest) {
		if key, err := x509.ParseECPrivateKey(block.Bytes); err == nil {
			return key, nil
		}
		if key, err := x509.ParsePKCS8PrivateKey(block.Bytes); err == nil {
			if signer, ok := key.(crypto.Signer); ok {
				return signer, nil
			}
		}
	}
	return nil, errKey
}

// For returns a certificate for a name or address. With keep it makes each only once. Never keep certificates for names
// that a guest invents.
func (a *Authority) For(name string, keep bool, now time.Time) (*tls.Certificate, error) {
	a.mu.Lock()
	found, ok := a.cache[name]
	a.mu.Unlock()
	if ok && now.Before(found.Leaf.NotAfter.Add(-remadeAt)) {
		return found, nil
	}
	made, err := a.make(name, now)
	if err != nil || !keep {
		return made, err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.cache) >= cacheMost {
		for each := range a.cache {
			delete(a.cache, each)
			break
		}
	}
	a.cache[name] = made
	return made, nil
}

func (a *Authority) make(name string, now time.Time) (*tls.Certificate, error) {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
	if err != nil {
		return nil, err
	}
	subject := name
	if len(subject) > 64 {
		subject = "" // a common name cannot be longer; the alternative name counts
	}
	template := &x509.Certificate{
		SerialNumber: serial,
		Subject:      pkix.Name{CommonName: subject},
		NotBefore:    now.Add(-backdated),
		NotAfter:     now.Add(validFor),
		KeyUsage:     x509.KeyUsageDigitalSignature,
		ExtKeyUsage:  []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	if template.NotBefore.Before(a.certificate.NotBefore) {
		template.NotBefore = a.certificate.NotBefore
	}
	if template.NotAfter.After(a.certificate.NotAfter) {
		template.NotAfter = a.certificate.NotAfter
	}
	if address := net.ParseIP(name); address != nil {
		template.IPAddresses = []net.IP{address}
	} else {
		template.DNSNames = []string{name}
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.certificate, &a.leafKey.PublicKey, a.key)
	if err != nil {
		return nil, fmt.Errorf("a certificate for %s cannot be made: %w", name, err)
	}
	parsed, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, err
	}
	return &tls.Certificate{
		Certificate: [][]byte{der, a.certificate.Raw}, PrivateKey: a.leafKey, Leaf: parsed,
	}, nil
}
