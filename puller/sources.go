package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"net"
	"net/http"
	"net/netip"
	"os"
	"strings"
	"syscall"
	"time"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/remote/transport"
)

const (
	connectTimeout = 30 * time.Second
	answerTimeout  = 60 * time.Second
)

// place says where an image comes from and whom to be while talking to strangers.
type place struct {
	Reference string              `json:"reference"`
	Mirrors   map[string][]string `json:"mirrors"`
	Insecure  []string            `json:"insecure"`
	UID       int                 `json:"uid"`
	GID       int                 `json:"gid"`
	// Whom to be for the registry itself: its mirrors are not asked then.
	Login *login `json:"login"`
	// Without a login: be nobody, even if the host has credentials.
	Anonymous bool `json:"anonymous"`
	// Networks in which neither the registry may be nor what it leads to; its mirrors may be anywhere.
	Refused []netip.Prefix `json:"refused"`
	// The reader of the errors may not know this machine's network: its addresses, nameservers and proxies.
	Tenant bool `json:"tenant"`
}

type login struct {
	Username string `json:"username"`
	Password string `json:"password"`
}

// source is a repository that may have the image.
type source struct {
	ref  name.Reference
	auth authn.Authenticator
	base http.RoundTripper
	// The transport with the registry's token, once it was asked for.
	known http.RoundTripper
}

// open finds the repositories to ask, and then gives up all rights.
func (p *place) open() ([]*source, error) {
	found, err := p.sources()
	if err != nil {
		return nil, err
	}
	return found, becomeUser(p.UID, p.GID)
}

// sources finds the repositories to ask, mirrors first, and reads the credentials for each.
func (p *place) sources() ([]*source, error) {
	wanted, err := name.ParseReference(p.Reference, p.options("")...)
	if err != nil {
		return nil, newFault("invalid", "%v", err)
	}
	if wanted, err = name.ParseReference(p.Reference, p.options(wanted.Context().RegistryStr())...); err != nil {
		return nil, newFault("invalid", "%v", err)
	}
	refs, err := p.mirrored(wanted)
	if err != nil {
		return nil, err
	}
	pool, err := x509.SystemCertPool()
	if err != nil {
		return nil, newFault("failed", "the host's CA certificates cannot be read: %v", err)
	}
	anywhere := plainTransport(pool, &net.Dialer{Timeout: connectTimeout})
	var found []*source
	for _, ref := range append(refs, wanted) {
		inner := http.RoundTripper(anywhere)
		if ref == wanted && len(p.Refused) > 0 {
			made := func(dialer *net.Dialer) *http.Transport { return plainTransport(pool, dialer) }
			if inner, err = newOutside(p.Refused, made); err != nil {
				return nil, err
			}
		}
		auth, err := p.credentials(ref)
		if err != nil {
			return nil, err
		}
		local := isInsecure(ref.Context().RegistryStr(), nil)
		base := &guarded{inner: inner, insecure: p.Insecure, local: local}
		found = append(found, &source{ref: ref, auth: auth, base: base})
	}
	return found, nil
}

func (p *place) options(registry string) []name.Option {
	if registry != "" && isInsecure(registry, p.Insecure) {
		return []name.Option{name.WeakValidation, name.Insecure}
	}
	return []name.Option{name.WeakValidation}
}

// mirrored gives the references under which mirrors of the registry have the image.
func (p *place) mirrored(wanted name.Reference) ([]name.Reference, error) {
	var refs []name.Reference
	if p.Login != nil {
		return nil, nil
	}
	for host, mirrors := range p.Mirrors {
		registry, err := name.NewRegistry(host)
		if err != nil {
			return nil, newFault("invalid", "the mirrored registry %q: %v", host, err)
		}
		if registry.RegistryStr() != wanted.Context().RegistryStr() {
			continue
		}
		for _, mirror := range mirrors {
			server, _, _ := strings.Cut(mirror, "/")
			repository, err := name.NewRepository(
				strings.TrimRight(mirror, "/")+"/"+wanted.Context().RepositoryStr(), p.options(server)...)
			if err != nil {
				return nil, newFault("invalid", "the mirror %q: %v", mirror, err)
			}
			refs = append(refs, within(repository, wanted))
		}
	}
	return refs, nil
}

func within(repository name.Repository, wanted name.Reference) name.Reference {
	if digest, ok := wanted.(name.Digest); ok {
		return repository.Digest(digest.DigestStr())
	}
	return repository.Tag(wanted.Identifier())
}

func (p *place) credentials(ref name.Reference) (authn.Authenticator, error) {
	if p.Login != nil {
		return authn.FromConfig(authn.AuthConfig{Username: p.Login.Username, Password: p.Login.Password}), nil
	}
	if p.Anonymous {
		return authn.Anonymous, nil
	}
	found, err := authn.DefaultKeychain.Resolve(ref.Context())
	if err != nil {
		return nil, newFault("credentials", "the credentials for %s cannot be read: %v", ref.Context().RegistryStr(), err)
	}
	config, err := found.Authorization()
	if err != nil {
		return nil, newFault("credentials", "the credentials for %s cannot be read: %v", ref.Context().RegistryStr(), err)
	}
	return authn.FromConfig(*config), nil
}

func plainTransport(pool *x509.CertPool, dialer *net.Dialer) *http.Transport {
	return &http.Transport{
		Proxy:                 http.ProxyFromEnvironment,
		DialContext:           dialer.DialContext,
		TLSClientConfig:       &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12},
		TLSHandshakeTimeout:   connectTimeout,
		ResponseHeaderTimeout: answerTimeout,
		ForceAttemptHTTP2:     true,
		MaxIdleConnsPerHost:   4,
		// What is asked for is what its digest is of.
		DisableCompression: true,
	}
}

// transport asks the registry for a token to pull with, once.
func (s *source) transport(ctx context.Context) (http.RoundTripper, error) {
	if s.known == nil {
		repository := s.ref.Context()
		scopes := []string{repository.Scope(transport.PullScope)}
		made, err := transport.NewWithContext(ctx, repository.Registry, s.auth, s.base, scopes)
		if err != nil {
			return nil, err
		}
		s.known = made
	}
	return s.known, nil
}

// becomeUser leaves root for good; in every thread, and with no way to more rights through programs.
func becomeUser(uid, gid int) error {
	if os.Geteuid() != 0 {
		return nil
	}
	if uid == 0 {
		// There is no other user here, and the kernel keeps whom there is from leaving its groups.
		if err := keepRights(nil); err != nil {
			return newFault("failed", "give up root's rights: %v", err)
		}
		return noNewRights()
	}
	if err := syscall.Setgroups(nil); err != nil {
		return newFault("failed", "leave root's groups: %v", err)
	}
	if err := syscall.Setresgid(gid, gid, gid); err != nil {
		return newFault("failed", "become group %d: %v", gid, err)
	}
	if err := syscall.Setresuid(uid, uid, uid); err != nil {
		return newFault("failed", "become user %d: %v", uid, err)
	}
	return noNewRights()
}
