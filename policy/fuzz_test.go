package policy

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"unicode/utf8"
)

func FuzzHost(f *testing.F) {
	for _, text := range []string{
		"a.x", "A.X.", "a.x:443", "[::1]:8080", "::1", "Bücher.DE.", "a.x@b.x", "a..b", "a.x:0443", "1.2.3.4.", "xn--bcher-kva.de",
		"\u2488.x", "a\u3002x", "[::ffff:1.2.3.4%eth0]", "a.x:", ":80", "_x.a",
	} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		host, port, err := splitHost(text)
		if err != nil {
			return
		}
		again, err := CanonicalHost(host)
		if err != nil || again != host {
			t.Errorf("%q is %q and then %q, %v", text, host, again, err)
		}
		if strings.ContainsAny(host, "/@ \t\r\n\x00%\\?#") || port < 0 || port > 65535 {
			t.Errorf("%q is %q, port %d", text, host, port)
		}
		if back, other, err := splitHost(JoinHost(host, port)); err != nil || back != host || other != port {
			t.Errorf("%q is %q, port %d, and then %q, port %d, %v", text, host, port, back, other, err)
		}
	})
}

func FuzzQuery(f *testing.F) {
	for _, text := range []string{
		"a=1&b=2", "a=1;b=2", "%61=1&A=2", "a[]=1", "a=%zz", "&&=&a", "a+b=c", "_method=DELETE&%5fmethod=x", "a%00=1", "\xff=1",
	} {
		f.Add(text, "a")
		f.Add(text, "_method")
	}
	f.Add(";", ";")
	f.Fuzz(func(t *testing.T, text, name string) {
		if name == "" {
			return
		}
		left := WithoutParameter(text, name)
		if WithoutParameter(left, name) != left {
			t.Errorf("%q without %q changes once more", text, name)
		}
		query, err := parseQuery(left)
		if err != nil {
			return
		}
		for _, each := range query.parameters {
			if each.name == name {
				t.Errorf("%q is still in %q", name, left)
			}
		}
		if query.judge(name, textGlobs([]string{"*"})) == yes {
			t.Errorf("%q is found in %q", name, left)
		}
	})
}

func FuzzSetText(f *testing.F) {
	for _, body := range []string{`{}`, `{"a":{"b":1}}`, `{"a" : [1, {"b":null}]}`, `{"A":1}`, `[{}]`, `1`, `{"a":1,"a":2}`} {
		f.Add([]byte(body), "a.b", "v\"\u2028")
		f.Add([]byte(body), "0.b", "")
	}
	f.Fuzz(func(t *testing.T, body []byte, path, text string) {
		if !utf8.ValidString(path) || !utf8.ValidString(text) {
			return // rules and secrets come as JSON
		}
		changed, err := SetText(body, path, text)
		if err != nil {
			return
		}
		root, err := parseDocument(changed)
		if err != nil {
			t.Fatalf("%q with %q at %q is %q: %v", body, text, path, changed, err)
		}
		found, clear := root.find(path)
		if !clear || found == nil || found.kind != kindText || found.text != text {
			t.Errorf("%q with %q at %q is %q", body, text, path, changed)
		}
	})
}

func FuzzMCP(f *testing.F) {
	for _, body := range []string{
		`{"jsonrpc":"2.0","method":"tools/call","params":{"name":"read","arguments":{"path":"/a"}}}`,
		`[{"jsonrpc":"2.0","method":"tools/list"},{"jsonrpc":"2.0","method":"tools/call","params":{"name":"wipe"}}]`,
		`{"jsonrpc":"2.0","id":1,"result":{}}`, `[]`, `[[]]`, `{"jsonrpc":2,"method":[]}`, `{"Method":"x"}`,
	} {
		f.Add([]byte(body))
	}
	const condition = `"mcp":{"methods":["tools/*"],"tools":["read"],"arguments":{"path":["/a*"]}}`
	f.Fuzz(func(t *testing.T, body []byte) {
		asked := func(texts ...string) Verdict {
			return ask(t, rules(t, texts...), "POST /", string(body), "content-type", jsonType)
		}
		allowed := asked(`{"action":"allow",` + condition + `}`)
		denied := asked(`{"action":"deny",`+condition+`}`, `{"action":"allow"}`)
		if allowed.Action == Allow && denied.Action == Allow {
			t.Errorf("%q is both inside and outside", body)
		}
	})
}

func FuzzRules(f *testing.F) {
	for _, text := range []string{
		`{"action":"allow","hosts":["*.a.x"],"ports":[443,"80-90"],"paths":["/**"],"query":{"a":["*"]},"headers":{"x-a":["1"]}}`,
		`{"action":"deny","addresses":["10.0.0.0/8","::1"],"json":{"a.b":["*"]},"mcp":{"tools":["a"]}}`,
		`{"action":"allow","inject":[{"secret":"s","into":"basic","key":"me","format":"{}"}],"limit":{"bytes_s":1}}`,
		`{"action":"allow","inject":[{"into":"header","key":"x-auth","format":"{id}:{key}{{}}"}]}`,
		`{"action":"allow","set_headers":{"a":"b"},"remove_headers":["c"],"max_body_bytes":0}`, `{}`, `[]`, `null`, `{"ports":[{}]}`,
	} {
		f.Add(text, "a.x", 443)
	}
	f.Fuzz(func(t *testing.T, text, host string, port int) {
		found, err := ParseRules([]json.RawMessage{json.RawMessage(text)})
		if err != nil {
			return
		}
		to := Destination{Name: host, Address: host, Port: port}
		request, err := NewRequest(Parts{Scheme: "https", Method: "GET", Target: "/a?b", Header: http.Header{}}, to, Keep(found))
		if err != nil {
			return
		}
		verdict := Judge(Keep(found), request, false)
		if verdict.Action == Allow && found[0].Action != Allow {
			t.Errorf("%s allows", text)
		}
		found[0].Fits(to)
		found[0].Changes()
	})
}
