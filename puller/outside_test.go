package main

import (
	"context"
	"crypto/x509"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
)

// served listens on an address of loopback, and counts who comes.
func served(t *testing.T, address string, answer http.HandlerFunc) (*httptest.Server, *atomic.Int32) {
	t.Helper()
	listener, err := net.Listen("tcp", address+":0")
	if err != nil {
		t.Fatal(err)
	}
	var came atomic.Int32
	count := func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			came.Add(1)
		}
	}
	server := &httptest.Server{Listener: listener, Config: &http.Server{Handler: answer, ConnState: count}}
	server.Start()
	t.Cleanup(server.Close)
	return server, &came
}

// but127001 is for machines where 127.0.0.1 is inside, and all else outside.
func but127001(t *testing.T) *outside {
	t.Helper()
	o, err := newOutside(nil, func(d *net.Dialer) *http.Transport { return plainTransport(x509.NewCertPool(), d) })
	if err != nil {
		t.Fatal(err)
	}
	o.refused = []netip.Prefix{netip.MustParsePrefix("127.0.0.1/32"), netip.MustParsePrefix("::1/128")}
	o.proxy = func(*http.Request) (*url.URL, error) { return nil, nil }
	return o
}

func TestARegistryOutsideLeadsNobodyInside(t *testing.T) {
	server, came := served(t, "127.0.0.1", func(http.ResponseWriter, *http.Request) {})
	inside := strings.Replace(server.URL, "127.0.0.1", "localhost", 1)
	ways := map[string]http.HandlerFunc{
		"redirect": func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, inside+"/secret", http.StatusFound)
		},
		"token": func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/token" {
				http.Redirect(w, r, inside+"/token", http.StatusFound)
				return
			}
			w.Header().Set("WWW-Authenticate", `Bearer realm="http://`+r.Host+`/token",service="x"`)
			w.WriteHeader(http.StatusUnauthorized)
		},
	}
	for way, answer := range ways {
		registry, asked := served(t, "127.0.0.2", answer)
		host := strings.TrimPrefix(registry.URL, "http://")
		ref, err := name.ParseReference(host+"/a:1", name.Insecure)
		if err != nil {
			t.Fatal(err)
		}
		s := &source{ref: ref, auth: authn.Anonymous, base: &guarded{inner: but127001(t), local: true}}
		_, err = s.resolve(context.Background())
		if codeOf(err) != "inside" || strings.Contains(asFault(err).Message, "127.0.0.1") {
			t.Errorf("%s: %v", way, err)
		}
		if asked.Load() == 0 || came.Load() != 0 {
			t.Errorf("%s: %d and %d connections", way, asked.Load(), came.Load())
		}
	}
}

func TestWhatStrangersNameIsRefusedWhateverItIsCalled(t *testing.T) {
	server, came := served(t, "127.0.0.1", func(http.ResponseWriter, *http.Request) {})
	_, port, _ := net.SplitHostPort(server.Listener.Addr().String())
	for _, host := range []string{"127.0.0.1", "localhost", "[::ffff:127.0.0.1]", "0.0.0.0"} {
		p := place{Reference: host + ":" + port + "/a:1", Anonymous: true, UID: -1, GID: -1}
		for _, text := range []string{"127.0.0.0/8", "::/96", "0.0.0.0/8"} {
			p.Refused = append(p.Refused, netip.MustParsePrefix(text))
		}
		sources, err := p.sources()
		if err != nil {
			t.Fatal(host, err)
		}
		if _, err := sources[0].resolve(context.Background()); codeOf(err) != "inside" {
			t.Errorf("%s: %v", host, err)
		}
	}
	if came.Load() != 0 {
		t.Errorf("%d connections", came.Load())
	}
}

func TestAddressesThatCarryOthersAreWhatTheyCarry(t *testing.T) {
	o := &outside{refused: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("fe80::/10")}}
	for text, wanted := range map[string]bool{
		"10.1.2.3": true, "::ffff:10.1.2.3": true, "64:ff9b::a01:203": true, "fe80::1%lo": true,
		"198.51.100.1": false, "64:ff9b::c633:6401": false, "2001:db8::1": false,
	} {
		if o.isInside(netip.MustParseAddr(text)) != wanted {
			t.Errorf("%s: not %v", text, wanted)
		}
	}
}

func TestThisMachinesOwnAddressesAreInside(t *testing.T) {
	o, err := newOutside(nil, func(*net.Dialer) *http.Transport { return &http.Transport{} })
	if err != nil {
		t.Fatal(err)
	}
	if !o.isInside(netip.MustParseAddr("127.0.0.1")) {
		t.Fatal(o.refused)
	}
}

func TestAProxyIsAskedForNothingThatIsNamedInside(t *testing.T) {
	proxy, came := served(t, "127.0.0.1", func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusTeapot)
	})
	o := but127001(t)
	where, _ := url.Parse(proxy.URL)
	o.proxy = func(*http.Request) (*url.URL, error) { return where, nil }
	o.proxied.(*http.Transport).Proxy = http.ProxyURL(where)
	for host, wanted := range map[string]bool{
		"127.0.0.1": true, "localhost": true, "127.1": true, "0x7f000001": true, "[::1]": true, "127.0.0.2": false,
	} {
		response, err := o.RoundTrip(httptest.NewRequest(http.MethodGet, "http://"+host+"/v2/", nil))
		if (err != nil) != wanted || wanted && codeOf(err) != "inside" {
			t.Errorf("%s: %v", host, err)
		}
		if err == nil {
			response.Body.Close()
		}
	}
	if came.Load() != 1 {
		t.Errorf("%d connections", came.Load())
	}
}
