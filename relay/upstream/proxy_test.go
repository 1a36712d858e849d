package upstream

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"testing"
)

func TestAURLSaysWhereTheProxyIsAndAsWhomToUseIt(t *testing.T) {
	for text, want := range map[string]Proxy{
		"http://Proxy.Example:3128": {scheme: http, host: "proxy.example", port: 3128},
		"http://ann@proxy:3128/":    {scheme: http, host: "proxy", port: 3128, login: &login{user: "ann"}},
		"socks5://a%40n:p%3A%40%2f%C3%BC@8.8.8.8:1": {
			scheme: socks5, host: "8.8.8.8", port: 1, login: &login{user: "a@n", password: "p:@/ü"},
		},
		"socks5://ann:@[2001:DB8::1]:65535": {scheme: socks5, host: "2001:db8::1", port: 65535, login: &login{user: "ann"}},
		"http://[::ffff:8.8.8.8]:1":         {scheme: http, host: "8.8.8.8", port: 1},
		"socks5://ann:atoll-sealed.AA-_@proxy:1": {
			scheme: socks5, host: "proxy", port: 1, login: &login{user: "ann", password: "atoll-sealed.AA-_", isSealed: true},
		},
		"http://ann:atoll-sealed." + strings.Repeat("A", 400) + "@proxy:1": {
			scheme: http, host: "proxy", port: 1,
			login: &login{user: "ann", password: "atoll-sealed." + strings.Repeat("A", 400), isSealed: true},
		},
	} {
		if found := proxy(t, text); !found.Equal(&want) {
			t.Errorf("%s is %+v, %+v", text, found, found.login)
		}
	}
}

func TestWhatIsNoProxyIsRefusedWithoutShowingThePassword(t *testing.T) {
	address := func(url string) string { return `{"url":"` + url + `"}` }
	for _, text := range []string{
		address(""), address("proxy:1"), address("https://proxy:1"), address("http://proxy"), address("http://proxy:1/x"),
		address("http://proxy:1\\n"), address("http://1.2.3:1"), address("http://a..b:1"), address("http://[fe80::1%25eth0]:1"),
		address("http://[1:2]:1"), address("http://b\u00fccher.example:1"), address("http://proxy:0"),
		address("http://proxy:65536"),
		address("http://a%3Ab:secret@proxy:1"), address("socks5://ann:%ff@proxy:1"),
		address("socks5://ann:%zz@proxy:1"),
		address("socks5://ann:%0d@proxy:1"), address("socks5://ann:%C2%A0@proxy:1"),
		address("socks5://" + strings.Repeat("u", 256) + ":secret@proxy:1"),
		address("socks5://ann:" + strings.Repeat("%C3%BC", 128) + "@proxy:1"), address("socks5://:secret@proxy:1"),
		`{"url":"http://ann:secret@proxy:1","ports":[1]}`, `{"url":"http://ann:secret@proxy:1"`, `"http://ann:secret@proxy:1"`,
		`{"url":"http://ann:secret@proxy:1","addresses":["10.0.0.1/8"]}`, `{"url":"http://ann:secret@proxy:1","addresses":["a"]}`,
		`{"url":"http://ann:secret@proxy:1","addresses":["fe80::1%eth0"]}`, `{"url":{"secret":1}}`,
	} {
		found := &Proxy{}
		err := json.Unmarshal([]byte(text), found)
		if err == nil {
			t.Errorf("%s is taken as %+v", text, found)
			continue
		}
		for _, hidden := range []string{"secret", "%ff", "%zz", "%0d", "C3"} {
			if strings.Contains(err.Error(), hidden) {
				t.Errorf("%v shows the password", err)
			}
		}
	}
	if (&Proxy{}).UnmarshalJSON([]byte(address("http://proxy:1")+"x")) == nil {
		t.Error("what follows is not seen")
	}
}

func TestAPasswordIsShownNowhere(t *testing.T) {
	found := proxy(t, "http://ann:s3cr3t@proxy:1", "10.0.0.0/8")
	var log strings.Builder
	slog.New(slog.NewJSONHandler(&log, nil)).Info("used", "proxy", found, "same", *found)
	slog.New(slog.NewTextHandler(&log, nil)).Info("used", "proxy", found, "same", *found)
	written, err := json.Marshal(struct{ Proxy *Proxy }{found})
	if err != nil {
		t.Fatal(err)
	}
	inside := struct{ by Proxy }{*found}
	text := log.String() + string(written) + fmt.Sprintf("%v %+v %#v %v %+v %#v", found, found, found, *found, inside, inside)
	if strings.Contains(text, "s3cr3t") {
		t.Error(text)
	}
}

func TestProxiesAreEqualThatAreUsedInTheSameWay(t *testing.T) {
	one := proxy(t, "http://ann:a@proxy:1", "10.0.0.0/8")
	if !one.Equal(proxy(t, "http://ann:a@PROXY:1/", "10.0.0.0/8")) || !(*Proxy)(nil).Equal(nil) {
		t.Error("the same proxy is another one")
	}
	for _, other := range []*Proxy{
		nil, proxy(t, "http://ann:b@proxy:1", "10.0.0.0/8"), proxy(t, "http://proxy:1", "10.0.0.0/8"),
		proxy(t, "http://ann:a@proxy:1"),
		proxy(t, "socks5://ann:a@proxy:1", "10.0.0.0/8"), proxy(t, "http://ann:a@proxy:2", "10.0.0.0/8"),
		proxy(t, "http://ann:a@other:1", "10.0.0.0/8"),
	} {
		if one.Equal(other) || other.Equal(one) {
			t.Errorf("%+v is the same", other)
		}
	}
}
