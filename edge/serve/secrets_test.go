package serve

import (
	"bytes"
	"compress/flate"
	"compress/gzip"
	"compress/zlib"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"
)

const token = `tok"en/+ü=sup3rs3cret`

func inject(into, key, format string) string {
	text, _ := json.Marshal(dict{"action": "allow", "inject": []dict{{"secret": "gh", "into": into, "key": key, "format": format}}})
	return string(text)
}

// echo tells what of a request arrived.
func echo(writer http.ResponseWriter, request *http.Request) {
	body, _ := io.ReadAll(request.Body)
	user, password, _ := request.BasicAuth()
	writer.Header().Set("X-Length", fmt.Sprint(request.ContentLength))
	// Reversed, so that nothing is scrubbed.
	fmt.Fprint(writer, reverse(fmt.Sprintf("auth=%v basic=%s:%s query=%s path=%s body=%s",
		request.Header.Values("Authorization"), user, password, request.URL.RawQuery, request.URL.EscapedPath(), body)))
}

func reverse(text string) string {
	out := []byte(text)
	for i, j := 0, len(out)-1; i < j; i, j = i+1, j-1 {
		out[i], out[j] = out[j], out[i]
	}
	return string(out)
}

func TestSecretsGoWhereTheRuleSays(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.secure("a.x", true, echo)
	for _, c := range []struct {
		rule, method, target, body, want string
		headers                          []string
	}{
		{inject("header", "authorization", "Bearer {}"), "GET", "/", "", "auth=[Bearer " + token + "]", []string{"Authorization", "mine", "authorization", "too", "Authorization_", "", "AUTHORIZATION", "mine"}},
		{inject("basic", "me", ""), "GET", "/", "", "basic=me:" + token + " ", []string{"Authorization", "mine"}},
		{inject("query", "key", ""), "GET", "/?a=1&key=mine&%6bey=too&b=2&c=3;KEY=mine", "", "query=a=1&b=2&key=" + url.QueryEscape(token) + " ", nil},
		{inject("path", "PLACE", ""), "GET", "/bot/PLACE/x", "", "path=/bot/" + url.PathEscape(token) + "/x ", nil},
		{inject("json", "auth.token", ""), "POST", "/", `{"a": 1, "auth":{"token":"mine"}}`, `body={"a": 1, "auth":{"token":"tok\"en/+ü=sup3rs3cret"}}`, []string{"Content-Type", "application/json"}},
		{inject("json", "auth.token", ""), "POST", "/", `{}`, `body={"auth":{"token":"tok\"en/+ü=sup3rs3cret"}}`, []string{"Content-Type", "application/json"}},
	} {
		w.policyWith(dict{"secrets": dict{"gh": token}}, c.rule)
		got := do(t, w.client(), c.method, "https://a.x"+c.target, c.body, c.headers...)
		expect(t, got.StatusCode, 200)
		contains(t, reverse(got.text), c.want)
		if strings.Contains(reverse(got.text), "mine") || strings.Contains(reverse(got.text), "too") {
			t.Errorf("what the guest wrote arrived: %s", reverse(got.text))
		}
	}
}

func TestSecretsThatCannotBeSent(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.secure("a.x", true, func(http.ResponseWriter, *http.Request) { t.Error("it arrived") })
	w.server("b.x", func(http.ResponseWriter, *http.Request) { t.Error("it arrived") })
	header := inject("header", "authorization", "Bearer {}")
	for _, c := range []struct{ rule, value, url, body, kind, want string }{
		{header, "a\r\nb: c", "https://a.x/", "", "", "line break"},
		{header, "", "https://a.x/", "", "", "is empty"},
		{strings.Replace(header, "gh", "other", 1), "x", "https://a.x/", "", "", "there is no secret other"},
		{header, "x", "http://b.x/", "", "", "unencrypted"},
		{strings.Replace(header, "gh", "bound", 1), "x", "https://a.x/", "", "", "may not be sent to this host"},
		{inject("json", "a", ""), "x", "https://a.x/", "a=b", "application/x-www-form-urlencoded", "is not JSON"},
		{inject("json", "a", ""), "x", "https://a.x/", `{"a":1,"a":2}`, "application/json", "twice"},
		{inject("json", "a", ""), "x", "https://a.x/", `{"b":"` + strings.Repeat("x", 300<<10) + `"}`, "application/json", "256 KiB"},
	} {
		w.policyWith(dict{"secrets": dict{"gh": c.value, "bound": "y"}, "bound": dict{"bound": []string{"*.a.x", "b.x"}}}, c.rule)
		got := do(t, w.client(), "POST", c.url, c.body, "Content-Type", c.kind)
		expect(t, got.StatusCode, 403)
		contains(t, got.text, c.want)
		eventually(t, "the denial in the log", func() bool {
			w.mu.Lock()
			defer w.mu.Unlock()
			all := w.entries
			return len(all) > 0 && all[len(all)-1].Action == "deny" && strings.Contains(all[len(all)-1].Reason, c.want)
		})
	}
	w.server("c.x", echo)
	w.policyWith(dict{"secrets": dict{"gh": "plaintext"}}, strings.Replace(header, `{`, `{"ports":["80-81"],`, 1))
	contains(t, reverse(do(t, w.client(), "GET", "http://c.x/", "").text), "Bearer plaintext")
}

func TestHeadersAreSetAndRemoved(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.policy(`{"action":"allow","set_headers":{"X-Team":"a"},"remove_headers":["cookie"]}`)
	got := make(chan http.Header, 1)
	w.server("a.x", func(_ http.ResponseWriter, request *http.Request) { got <- request.Header })
	do(t, w.client(), "GET", "http://a.x/", "", "x-team", "b", "x-team", "c", "cookie", "d", "Connection", "x-team")
	header := <-got
	expect(t, header["X-Team"], "[a]")
	expect(t, len(header["Cookie"]), 0)
}

func TestEchoesOfSecretsAreScrubbed(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	forms := strings.Join([]string{
		token, url.QueryEscape(token), url.PathEscape(token), `tok\"en/+ü=sup3rs3cret`, hex.EncodeToString([]byte(token)),
		base64.StdEncoding.EncodeToString([]byte("a" + token + "b")), base64.URLEncoding.EncodeToString([]byte(token)),
		base64.StdEncoding.EncodeToString([]byte("me:" + token)),
	}, "\n")
	big := strings.Repeat("x", 1<<20)
	w.secure("a.x", true, func(writer http.ResponseWriter, request *http.Request) {
		header, flush := writer.Header(), writer.(http.Flusher).Flush
		header.Set("X-Echo", request.Header.Get("Authorization"))
		switch request.URL.Path {
		case "/short":
			header.Set("Content-Length", fmt.Sprint(len(forms)))
			io.WriteString(writer, forms)
		case "/pieces":
			for i := range len(forms) {
				io.WriteString(writer, forms[i:i+1])
				flush()
			}
		case "/gzip", "/gzip-pieces":
			header.Set("Content-Encoding", "gzip")
			var packed bytes.Buffer
			packer := gzip.NewWriter(&packed)
			io.WriteString(packer, forms)
			packer.Close()
			for i, char := range packed.Bytes() {
				writer.Write([]byte{char})
				if i%7 == 0 && request.URL.Path == "/gzip-pieces" {
					flush()
				}
			}
		case "/clean":
			header.Set("Content-Encoding", "gzip")
			packer := gzip.NewWriter(writer)
			io.WriteString(packer, "clean")
			packer.Close()
		case "/events":
			header.Set("Content-Type", "text/event-stream")
			io.WriteString(writer, "data: "+token+"\n\n")
		case "/big", "/big-gzip":
			if request.URL.Path == "/big" {
				header.Set("Content-Length", fmt.Sprint(len(big)+len(token)))
				io.WriteString(writer, big+token)
				return
			}
			var packed bytes.Buffer
			packer, _ := gzip.NewWriterLevel(&packed, gzip.NoCompression)
			io.WriteString(packer, big+token)
			packer.Close()
			header.Set("Content-Encoding", "gzip")
			header.Set("Content-Length", fmt.Sprint(packed.Len()))
			packed.WriteTo(writer)
		case "/zlib", "/deflate":
			header.Set("Content-Encoding", "deflate")
			var packer io.WriteCloser = zlib.NewWriter(writer)
			if request.URL.Path == "/deflate" {
				packer, _ = flate.NewWriter(writer, 5)
			}
			io.WriteString(packer, token)
			packer.Close()
		case "/trailer":
			header.Set("Trailer", "X-End")
			io.WriteString(writer, "x")
			flush()
			header.Set("X-End", token)
		case "/encoding":
			header.Set("X-Accept", request.Header.Get("Accept-Encoding"))
		}
	})
	w.policyWith(dict{"secrets": dict{"gh": token}}, inject("basic", "me", ""))
	client := w.client()
	for _, path := range []string{"/short", "/pieces", "/gzip", "/gzip-pieces"} {
		got := do(t, client, "GET", "https://a.x"+path, "", "Accept-Encoding", "br, gzip;q=0.5")
		for _, each := range strings.Split(forms, "\n")[:5] {
			if strings.Contains(got.text, each) {
				t.Errorf("%s: %q came back", path, each)
			}
		}
		if strings.Count(got.text, "[secret gh]") < 8 || strings.Contains(got.text, base64.StdEncoding.EncodeToString([]byte(token))[4:20]) {
			t.Errorf("%s: got %q", path, got.text)
		}
		expect(t, got.Header.Get("X-Echo"), "Basic [secret gh]")
		if path == "/short" {
			expect(t, got.ContentLength, len(got.text))
		}
	}
	clean := do(t, client, "GET", "https://a.x/clean", "", "Accept-Encoding", "gzip")
	expect(t, clean.Header.Get("Content-Encoding"), "gzip")
	expect(t, do(t, client, "GET", "https://a.x/events", "").text, "data: [secret gh]\n\n")
	long := do(t, client, "GET", "https://a.x/big", "")
	expect(t, long.ContentLength, len(big)+len(token))
	expect(t, long.text, big+("[secret gh]" + strings.Repeat("*", len(token)))[:len(token)])
	expect(t, do(t, client, "GET", "https://a.x/big-gzip", "", "Accept-Encoding", "gzip").text, big+"[secret gh]")
	expect(t, do(t, client, "GET", "https://a.x/zlib", "").text, "[secret gh]")
	expect(t, do(t, client, "GET", "https://a.x/deflate", "").text, "[secret gh]")
	expect(t, do(t, client, "GET", "https://a.x/trailer", "").Trailer.Get("X-End"), "[secret gh]")
	expect(t, do(t, client, "GET", "https://a.x/encoding", "", "Accept-Encoding", "br").Header.Get("X-Accept"), "identity")
	expect(t, do(t, client, "GET", "https://a.x/encoding", "").Header.Get("X-Accept"), "")
}

func TestTwoSecretsForOneHostAndOneForTwo(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.secure("a.x", true, echo)
	w.secure("b.x", true, echo)
	both := `{"action":"allow","paths":["/both"],"inject":[{"secret":"one","into":"header","key":"authorization","format":"A {}"},` +
		`{"secret":"two","into":"query","key":"k"}]}`
	w.policyWith(dict{"secrets": dict{"one": "one-abcdef", "two": "two-abcdef"}}, both,
		`{"action":"allow","inject":[{"secret":"one","into":"query","key":"k"}]}`)
	client := w.client()
	contains(t, reverse(do(t, client, "GET", "https://a.x/both", "").text), "auth=[A one-abcdef] basic=: query=k=two-abcdef")
	contains(t, reverse(do(t, client, "GET", "https://b.x/", "").text), "auth=[] basic=: query=k=one-abcdef")
}

// injectPair puts two secrets into one place.
func injectPair(into, key string) string {
	return fmt.Sprintf(`{"action":"allow","inject":[{"into":%q,"key":%q,"format":"{id}:{key}"}]}`, into, key)
}

func TestSeveralSecretsInOnePlace(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.secure("a.x", true, echo)
	pair := dict{"id": "id-abcdef", "key": "key-/abcdef"}
	for _, c := range []struct{ into, key, target, want string }{
		{"header", "authorization", "/", "auth=[id-abcdef:key-/abcdef]"},
		{"basic", "me", "/", "basic=me:id-abcdef:key-/abcdef "},
		{"query", "k", "/?k=mine", "query=k=id-abcdef%3Akey-%2Fabcdef "},
		{"path", "PLACE", "/a/PLACE", "path=/a/id-abcdef:key-%2Fabcdef "},
		{"json", "a", "/", `body={"a":"id-abcdef:key-/abcdef"}`},
	} {
		w.policyWith(dict{"secrets": pair}, injectPair(c.into, c.key))
		contains(t, reverse(do(t, w.client(), "POST", "https://a.x"+c.target, `{}`, "Content-Type", "application/json").text), c.want)
	}
	for _, c := range []struct {
		with dict
		want string
	}{
		{dict{"secrets": dict{"id": "id-abcdef"}}, "there is no secret key"},
		{dict{"secrets": pair, "bound": dict{"key": []string{"b.x"}}}, "the secret key may not be sent to this host"},
		{dict{"secrets": dict{"id": "a\nb", "key": "k"}}, "the secret id is empty or has a line break"},
	} {
		w.policyWith(c.with, injectPair("header", "authorization"))
		got := do(t, w.client(), "GET", "https://a.x/", "")
		expect(t, got.StatusCode, 403)
		contains(t, got.text, c.want)
	}
}

func TestEachOfSeveralSecretsIsScrubbed(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.secure("a.x", true, func(writer http.ResponseWriter, request *http.Request) {
		fmt.Fprint(writer, request.Header.Get("Authorization"))
	})
	for into, want := range map[string]string{
		"header": "[secret id]:[secret key]", "basic": "Basic [secret id, key]",
	} {
		w.policyWith(dict{"secrets": dict{"id": "id-abcdef", "key": "key-abcdef"}}, injectPair(into, "authorization"))
		contains(t, do(t, w.client(), "GET", "https://a.x/", "").text, want)
	}
}

func TestASecretIsNotSentOnARedirect(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.secure("a.x", true, func(writer http.ResponseWriter, request *http.Request) {
		http.Redirect(writer, request, "https://b.x/", http.StatusTemporaryRedirect)
	})
	w.secure("b.x", true, echo)
	w.policyWith(dict{"secrets": dict{"gh": token}}, inject("header", "authorization", ""), inspected)
	first := w.client(0)
	expect(t, do(t, first, "GET", "https://a.x/", "").Header.Get("Location"), "https://b.x/")
	contains(t, reverse(do(t, w.client(1), "GET", "https://b.x/", "").text), "auth=[]")
}

func TestANewValueIsUsedAtOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.secure("a.x", true, echo)
	rule := inject("header", "authorization", "")
	client := w.client()
	for i, value := range []string{"first-value", "second-value"} {
		w.policyWith(dict{"secrets": dict{"gh": value}}, rule)
		if i > 0 {
			w.sendRules(0)
		}
		contains(t, reverse(do(t, client, "GET", "https://a.x/", "").text), "auth=["+value+"]")
	}
}

func TestACanaryUnplugs(t *testing.T) {
	t.Parallel()
	canary := "AKIACANARY0123456789"
	long := strings.Repeat("x", 100<<10)
	for name, c := range map[string]struct {
		target, body string
		headers      []string
	}{
		"in the path":      {"/" + canary, "", nil},
		"in the query":     {"/?a=%41" + canary[1:], "", nil},
		"in a header":      {"/", "", []string{"X-A", "b " + canary}},
		"in basic":         {"/", "", []string{"Authorization", "Basic " + base64.StdEncoding.EncodeToString([]byte("u:"+canary))}},
		"in the body":      {"/", long + canary + long, nil},
		"in hex":           {"/", hex.EncodeToString([]byte(canary)), nil},
		"in a long base64": {"/", base64.StdEncoding.EncodeToString([]byte(long + "xy" + canary + long)), nil},
		"in chunks":        {"/", canary, []string{"Chunked", "1"}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			arrived := &recorder{}
			w.secure("a.x", true, arrived.ServeHTTP)
			w.policyWith(dict{"canaries": []string{canary}, "observe": true}, inspected)
			request, err := http.NewRequest("POST", "https://a.x"+c.target, strings.NewReader(c.body))
			must(t, err)
			for i := 0; i < len(c.headers); i += 2 {
				request.Header.Set(c.headers[i], c.headers[i+1])
			}
			if name == "in chunks" {
				reader, writer := io.Pipe()
				request.Body, request.ContentLength = reader, -1
				go func() {
					for i := range len(canary) {
						io.WriteString(writer, canary[i:i+1])
					}
					io.WriteString(writer, "rest")
					writer.Close()
				}()
			}
			if response, err := w.client().Do(request); err == nil {
				t.Errorf("it was answered: %v", response.Status)
			}
			eventually(t, "the sandbox is unplugged", func() bool { return len(w.unplugged()) == 1 })
			if got := arrived.all(); strings.Contains(got, canary) || got != "" && !strings.HasSuffix(got, "broken") {
				t.Errorf("it arrived: %.100s", got)
			}
		})
	}
	w := newWorld(t)
	greeter(w, "r.x", false)
	w.policyWith(dict{"canaries": []string{canary}}, allow)
	if got := talk(t, w.take("r.x", 25), "LOGIN "+canary+"\r\n"); strings.Contains(got, canary) {
		t.Errorf("it arrived: %s", got)
	}
	eventually(t, "the sandbox is unplugged", func() bool { return len(w.unplugged()) == 1 })
}

func TestSecretsAreErasedWhenTheyAreReplaced(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.policyWith(dict{"secrets": dict{"gh": token}}, inject("header", "a", ""))
	first := w.edge.all()[0].current()
	value, ok := first.secrets.Use("gh")
	expect(t, string(value), token)
	expect(t, ok, true)
	w.policy(allow)
	if _, ok = first.secrets.Use("gh"); ok {
		t.Error("it is still there")
	}
}
