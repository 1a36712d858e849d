package main

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
)

func TestANameOfAnArchiveStaysBelowItsLayer(t *testing.T) {
	for raw, wanted := range map[string]string{"a/b": "a/b", "/etc/x": "etc/x", "./a//b/": "a/b", "./": "", "/": ""} {
		if got, err := inside(raw); err != nil || got != wanted {
			t.Errorf("%q: %q, %v", raw, got, err)
		}
	}
	for _, raw := range []string{"..", "../a", "a/../b", "/..", "a\x00b", strings.Repeat("a/", 3000)} {
		if got, err := inside(raw); err == nil {
			t.Errorf("%q became %q", raw, got)
		}
	}
}

func FuzzInside(f *testing.F) {
	f.Add("a/../b")
	f.Fuzz(func(t *testing.T, raw string) {
		got, err := inside(raw)
		if err == nil && got != "" && (!filepath.IsLocal(got) || strings.ContainsRune(got, 0)) {
			t.Errorf("%q became %q", raw, got)
		}
	})
}

func TestPlainHTTPIsForThisMachineAndForWhatWasNamed(t *testing.T) {
	for server, wanted := range map[string]bool{
		"localhost:5000": true, "127.0.0.1": true, "127.3.2.1:80": true, "[::1]:5000": true, "named:5000": true,
		"named": false, "10.0.0.1:5000": false, "localhost.example": false, "registry.local": false,
	} {
		if isInsecure(server, []string{"named:5000"}) != wanted {
			t.Errorf("%s: not %v", server, wanted)
		}
	}
	request := httptest.NewRequest(http.MethodGet, "http://10.0.0.1/v2/", nil)
	_, err := (&guarded{inner: http.DefaultTransport, local: true}).RoundTrip(request)
	if codeOf(err) != "insecure" {
		t.Fatal(err)
	}
}

func TestARegistryElsewhereSendsNoRequestsToThisMachine(t *testing.T) {
	request := httptest.NewRequest(http.MethodGet, "http://127.0.0.1:80/secret", nil)
	for local, wanted := range map[bool]string{true: "", false: "insecure"} {
		_, err := (&guarded{inner: &answers{statuses: []int{200}}, local: local}).RoundTrip(request)
		if (err == nil) != (wanted == "") || err != nil && codeOf(err) != wanted {
			t.Errorf("local %v: %v", local, err)
		}
	}
}

func TestAnErrorDoesNotTellWhatAnAddressWasSignedWith(t *testing.T) {
	err := withoutQuery(&url.Error{Op: "Get", URL: "https://ghost.example/blob?signature=secret", Err: io.EOF})
	if strings.Contains(err.Error(), "secret") || !strings.Contains(err.Error(), "ghost.example/blob") {
		t.Fatal(err)
	}
}

type answers struct {
	statuses []int
	body     string
}

func (a *answers) RoundTrip(request *http.Request) (*http.Response, error) {
	status := a.statuses[0]
	a.statuses = a.statuses[1:]
	return &http.Response{
		StatusCode: status, Request: request, Body: io.NopCloser(strings.NewReader(a.body)),
		Header: http.Header{"Retry-After": {"0"}},
	}, nil
}

func TestABusyServerIsAskedAgainAndALongAnswerIsNotRead(t *testing.T) {
	inner := &answers{statuses: []int{429, 503, 200}, body: strings.Repeat("x", answerMost+1)}
	request := httptest.NewRequest(http.MethodGet, "https://ghost.example/v2/a/manifests/1", nil)
	response, err := (&guarded{inner: inner}).RoundTrip(request)
	if err != nil || response.StatusCode != 200 {
		t.Fatal(response, err)
	}
	defer response.Body.Close()
	if _, err := io.ReadAll(response.Body); err == nil {
		t.Fatal("all of it was read")
	}
	if got := pauseOf(&http.Response{Header: http.Header{"Retry-After": {"999999"}}}, time.Second); got != longestPause {
		t.Fatal(got)
	}
}

func TestAMirrorHasTheImageUnderItsOwnPath(t *testing.T) {
	p := place{Mirrors: map[string][]string{"ghost.example": {"mirror.example:5000/cache/", "other.example"}}}
	for reference, wanted := range map[string]string{
		"ghost.example/team/tool:1": "mirror.example:5000/cache/team/tool:1 other.example/team/tool:1",
		"else.example/team/tool:1":  "",
	} {
		parsed, err := name.ParseReference(reference)
		if err != nil {
			t.Fatal(err)
		}
		refs, err := p.mirrored(parsed)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, ref := range refs {
			got = append(got, ref.String())
		}
		if strings.Join(got, " ") != wanted {
			t.Errorf("%s: %v", reference, got)
		}
	}
}

func TestNumbersOfANamespaceAreRead(t *testing.T) {
	table := filepath.Join(t.TempDir(), "uid_map")
	if err := os.WriteFile(table, []byte("         0       1000          1\n         1     100000      65535\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	ranges, err := mappedIDs(table)
	if err != nil || !isMapped(ranges, 65535) || isMapped(ranges, 65536) || isMapped(ranges, -1) {
		t.Fatal(ranges, err)
	}
	if _, err := mappedIDs(table + "-none"); !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
}
