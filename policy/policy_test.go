package policy

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"
)

func rules(t testing.TB, texts ...string) Kept {
	t.Helper()
	raw := make([]json.RawMessage, len(texts))
	for i, each := range texts {
		raw[i] = json.RawMessage(each)
	}
	found, err := ParseRules(raw)
	if err != nil {
		t.Fatal(err)
	}
	return Keep(found)
}

// ask judges "METHOD target" with a body and headers in pairs.
func ask(t testing.TB, kept Kept, line, body string, headers ...string) Verdict {
	t.Helper()
	method, target, _ := strings.Cut(line, " ")
	header := http.Header{}
	for i := 0; i < len(headers); i += 2 {
		header.Add(headers[i], headers[i+1])
	}
	request, err := NewRequest(Parts{
		Scheme: "https", Method: method, Target: target, Host: "a.x", Header: header, Length: int64(len(body)),
		Body: func() Body {
			return Body{[]byte(body), BodyUnclear(header)}
		},
	}, Destination{Name: "a.x", Port: 443}, kept)
	var fault *Fault
	if errors.As(err, &fault) {
		return Verdict{Action: fmt.Sprint(fault.Status), Reason: fault.Reason}
	}
	return Judge(kept, request, false)
}

const jsonType = "application/json"

func TestConditions(t *testing.T) {
	deep := strings.Repeat("[", 100) + strings.Repeat("]", 100)
	long := `{"model":"a","x":"` + strings.Repeat("y", DocumentMost) + `"}`
	for _, c := range []struct {
		condition string
		line      string
		body      string
		headers   []string
		// What a rule that allows, and one that denies before one that allows all, come to.
		allows, denies string
	}{
		{`"methods":["GET"]`, "GET /", "", nil, "allow", "deny"},
		{`"methods":["GET"]`, "POST /", "", nil, "deny", "allow"},
		{`"methods":["GET"]`, "get /", "", nil, "403", "403"},
		{`"paths":["/a/*"]`, "GET /a/b?c", "", nil, "allow", "deny"},
		{`"paths":["/a/*"]`, "GET /a/b/c", "", nil, "deny", "allow"},
		{`"paths":["/a/**"]`, "GET /a/b/c", "", nil, "allow", "deny"},
		{`"paths":["/a/**"]`, "GET /a/../b", "", nil, "deny", "allow"},
		{`"paths":["/a/**"]`, "GET /x/%2e%2E/a/b", "", nil, "allow", "deny"},
		{`"paths":["/a/**"]`, "GET /a/..%2fb", "", nil, "403", "403"},
		{`"paths":["/a/*"]`, "GET /a/b%2Fc", "", nil, "deny", "deny"},
		{`"paths":["/a/*","/a/*/*"]`, "GET /a/b%2Fc", "", nil, "allow", "deny"},
		{`"paths":["/a/b"]`, "GET //a//b", "", nil, "deny", "deny"},
		{`"paths":["/a/b"]`, "GET /a;x=1/b", "", nil, "deny", "deny"},
		{`"paths":["/a/b"]`, "GET /a%3Bx=1/b", "", nil, "deny", "deny"},
		{`"paths":["/a/@b"]`, "GET /a/%40b", "", nil, "allow", "deny"},
		{`"paths":["/a/%40b"]`, "GET /a/@b", "", nil, "allow", "deny"},
		{`"paths":["/a/é"]`, "GET /a/%c3%a9", "", nil, "allow", "deny"},
		{`"paths":["/a/*"]`, "GET /a/%ff", "", nil, "deny", "deny"},
		{`"paths":["/A"]`, "GET /a", "", nil, "deny", "deny"},
		{`"paths":["/admin/**"]`, "GET /ADMIN/x", "", nil, "deny", "deny"},
		{`"paths":["/a/*"]`, "GET /a/%252e%252e/b", "", nil, "403", "403"},
		{`"paths":["/a/*"]`, "GET /a/%25252e%252e%2fb", "", nil, "403", "403"},
		{`"paths":["/a/*"]`, "GET /a/x%2500", "", nil, "403", "403"},
		{`"paths":["/a/*"]`, "GET /a/x%255cy", "", nil, "403", "403"},
		{`"paths":["/a/b"]`, "GET /%2561/b", "", nil, "deny", "deny"},
		{`"paths":["/a/*"]`, "GET /a/b%252fc", "", nil, "deny", "deny"},
		{`"paths":["/a/*"]`, "GET /a/100%25", "", nil, "allow", "deny"},
		{`"paths":["/a/*"]`, "GET /a/%2541", "", nil, "allow", "deny"},
		{`"paths":["/a"]`, "GET /a%00", "", nil, "403", "403"},
		{`"paths":["/a"]`, `GET /x\..\a`, "", nil, "403", "403"},
		{`"query":{"s":["v*"]}`, "GET /?s=v1&t=2", "", nil, "allow", "deny"},
		{`"query":{"s":["v*"]}`, "GET /?s=%76", "", nil, "allow", "deny"},
		{`"query":{"s":["v*"]}`, "GET /?t=v", "", nil, "deny", "allow"},
		{`"query":{"s":["v*"]}`, "GET /?s=v&s=w", "", nil, "deny", "deny"},
		{`"query":{"s":["v*"]}`, "GET /?s=v&S=w", "", nil, "deny", "deny"},
		{`"query":{"s":["v*"]}`, "GET /?s=v&s[]=w", "", nil, "deny", "deny"},
		{`"query":{"s":["v*"]}`, "GET /?x=1;s=v", "", nil, "deny", "deny"},
		{`"query":{"s":["v*"]}`, "GET /?s=%zz", "", nil, "deny", "deny"},
		{`"headers":{"x-a":["1*"]}`, "GET /", "", []string{"X-A", "12"}, "allow", "deny"},
		{`"headers":{"x-a":["1*"]}`, "GET /", "", nil, "deny", "allow"},
		{`"headers":{"x-a":["1*"]}`, "GET /", "", []string{"x-a", "1", "x-a", "2"}, "deny", "deny"},
		{`"headers":{"x-a":["1*"]}`, "GET /", "", []string{"x-a", "1", "connection", "x-a"}, "deny", "allow"},
		{`"headers":{"x-a":["1*"]}`, "GET /", "", []string{"x-a", "1", "x_a", "2"}, "deny", "deny"},
		{`"max_body_bytes":3`, "PUT /", "abc", nil, "allow", "deny"},
		{`"max_body_bytes":3`, "PUT /", "abcd", nil, "deny", "allow"},
		{`"json":{"model":["a*"]}`, "POST /", `{"model":"abc"}`, []string{"content-type", jsonType}, "allow", "deny"},
		{`"json":{"model":["a*"]}`, "POST /", `{"\u006dodel":"abc"}`, []string{"content-type", jsonType}, "allow", "deny"},
		{`"json":{"model":["a*"]}`, "POST /", `{"model":"b"}`, []string{"content-type", jsonType}, "deny", "allow"},
		{`"json":{"model":["a*"]}`, "POST /", `{}`, []string{"content-type", jsonType}, "deny", "allow"},
		{`"json":{"model":["a*"]}`, "GET /", ``, nil, "deny", "allow"},
		{`"json":{"model":["a*"]}`, "POST /", `{"model":"a","model":"b"}`, []string{"content-type", jsonType}, "deny", "deny"},
		{`"json":{"model":["a*"]}`, "POST /", `{"model":"a","Model":"b"}`, []string{"content-type", jsonType}, "deny", "deny"},
		{`"json":{"model":["a*"]}`, "POST /", `{"Model":"a"}`, []string{"content-type", jsonType}, "deny", "deny"},
		{`"json":{"model":["a*"]}`, "POST /", `{"model":"a","x":{"y":1,"y":1}}`, []string{"content-type", jsonType}, "deny", "deny"},
		{`"json":{"model":["a*"]}`, "POST /", `{"model":["a"]}`, []string{"content-type", jsonType}, "deny", "deny"},
		{`"json":{"model":["a*"]}`, "POST /", `{"model":"a"} x`, []string{"content-type", jsonType}, "deny", "deny"},
		{`"json":{"model":["a*"]}`, "POST /", `{"model":"a"}`, []string{"content-type", "text/plain"}, "deny", "deny"},
		{`"json":{"model":["a*"]}`, "POST /", `{"model":"a"}`, []string{"content-type", jsonType, "content-encoding", "gzip"}, "deny", "deny"},
		{`"json":{"model":["a*"]}`, "POST /", `{"model":"a"}`, []string{"content-type", jsonType + "; charset=utf-16"}, "deny", "deny"},
		{`"json":{"model":["a*"]}`, "POST /", `{"model":"a"}`, []string{"content-type", jsonType, "content_type", "x/y"}, "deny", "deny"},
		{`"json":{"model":["a*"]}`, "POST /", long, []string{"content-type", jsonType}, "deny", "deny"},
		{`"json":{"model":["a*"]}`, "POST /", deep, []string{"content-type", jsonType}, "deny", "deny"},
		{`"json":{"n":["1"],"b":["true"],"m.0.r":["u"]}`, "POST /", `{"n":1.0,"b":true,"m":[{"r":"u"}]}`, []string{"content-type", "application/x+json; charset=UTF-8"}, "allow", "deny"},
		{`"json":{"n":["1"]}`, "POST /", `{"n":10e-1}`, []string{"content-type", jsonType}, "allow", "deny"},
	} {
		t.Run(c.condition+" "+c.line, func(t *testing.T) {
			got := ask(t, rules(t, `{"action":"allow",`+c.condition+`}`), c.line, c.body, c.headers...)
			if got.Action != c.allows {
				t.Errorf("a rule that allows: %s (%s), want %s", got.Action, got.Reason, c.allows)
			}
			kept := rules(t, `{"action":"deny",`+c.condition+`}`, `{"action":"allow"}`)
			if got = ask(t, kept, c.line, c.body, c.headers...); got.Action != c.denies {
				t.Errorf("a rule that denies: %s (%s), want %s", got.Action, got.Reason, c.denies)
			}
		})
	}
}

func TestMCP(t *testing.T) {
	call := func(tool, repo string) string {
		return fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":%q,"arguments":{"repo":%q}}}`, tool, repo)
	}
	initialize := `{"jsonrpc":"2.0","id":1,"method":"initialize"}`
	tools := `{"tools":["search_*"]}`
	full := `{"methods":["initialize","tools/call"],"tools":["search_*"],"arguments":{"repo":["acme/*"]}}`
	for _, c := range []struct{ condition, body, allows, denies string }{
		{tools, call("search_code", ""), "allow", "deny"},
		{tools, call("delete", ""), "deny", "allow"},
		{tools, initialize, "deny", "allow"},
		{full, initialize, "deny", "allow"},
		{full, call("search_code", "acme/a"), "allow", "deny"},
		{full, call("search_code", "other/a"), "deny", "allow"},
		{full, `{"jsonrpc":"2.0","method":"tools/list"}`, "deny", "allow"},
		{tools, "[" + call("search_a", "") + "," + call("search_b", "") + "]", "allow", "deny"},
		{tools, "[" + call("search_a", "") + "," + call("delete", "") + "]", "deny", "deny"},
		{tools, "[]", "deny", "deny"},
		{tools, `{"method":"tools/call","params":{"name":"search_a"}}`, "deny", "deny"},
		{tools, `{"jsonrpc":"2.0","method":"tools/call","Method":"x","params":{"name":"search_a"}}`, "deny", "deny"},
		{tools, `{"jsonrpc":"2.0","method":"tools/call","params":{"name":["search_a"]}}`, "deny", "deny"},
		{`{"methods":["*"]}`, `{"jsonrpc":"2.0","id":1,"result":{}}`, "allow", "deny"},
		{`{"methods":["tools/*"]}`, `{"jsonrpc":"2.0","id":1,"result":{}}`, "deny", "allow"},
		{tools, `"x"`, "deny", "deny"},
	} {
		t.Run(c.condition+c.body, func(t *testing.T) {
			for action, want := range map[string]string{"allow": c.allows, "deny": c.denies} {
				texts := []string{`{"action":"` + action + `","mcp":` + c.condition + `}`}
				if action == "deny" {
					texts = append(texts, `{"action":"allow"}`)
				}
				got := ask(t, rules(t, texts...), "POST /mcp", c.body, "content-type", jsonType)
				if got.Action != want {
					t.Errorf("%s: got %s, want %s", action, got.Action, want)
				}
			}
		})
	}
}

func TestWhatIsNotHTTP(t *testing.T) {
	for _, c := range []struct {
		texts []string
		want  string
	}{
		{[]string{`{"action":"allow"}`}, "allow"},
		{[]string{`{"action":"allow","limit":{"bytes_s":1}}`}, "deny"},
		{[]string{`{"action":"allow","set_headers":{"a":"b"}}`, `{"action":"allow"}`}, "allow"},
		{[]string{`{"action":"allow","protocol":"http"}`}, "deny"},
		{[]string{`{"action":"allow","methods":["GET"]}`, `{"action":"allow"}`}, "allow"},
		{[]string{`{"action":"deny","methods":["POST"]}`, `{"action":"allow"}`}, "deny"},
		{[]string{`{"action":"unplug","paths":["/x"]}`, `{"action":"allow"}`}, "unplug"},
		{[]string{`{"action":"allow"}`, `{"action":"deny"}`}, "allow"},
		{nil, "deny"},
	} {
		if got := JudgeRaw(rules(t, c.texts...), false); got.Action != c.want {
			t.Errorf("%v: got %s, want %s", c.texts, got.Action, c.want)
		}
	}
	if got := JudgeRaw(Kept{}, true); !got.Passes() || !got.Observed {
		t.Error("what is observed passes")
	}
}

func TestHosts(t *testing.T) {
	name := Destination{Name: "a.x", Address: "192.0.2.1", Port: 443}
	other := Destination{Name: "a.x", Address: "192.0.2.1", Port: 8443}
	bare := Destination{Address: "192.0.2.1", Port: 443}
	for _, c := range []struct {
		to     Destination
		sni    string
		host   string
		target string
		want   string
	}{
		{name, "a.x", "a.x", "/", "a.x"},
		{name, "a.x", "A.X.", "/", "a.x"},
		{name, "a.x", "a.x:443", "/", "a.x:443"},
		{name, "a.x", "", "/", "a.x"},
		{name, "a.x", "a.x:80", "/", "421"},
		{name, "a.x", "b.x", "/", "421"},
		{name, "a.x", "a.x@b.x", "/", "421"},
		{name, "a.x", "a.x/b", "/", "421"},
		{name, "a.x", "a.x:0443", "/", "421"},
		{name, "", "192.0.2.1", "/", "421"},
		{other, "a.x", "a.x:8443", "/", "a.x:8443"},
		{other, "a.x", "", "/", "a.x:8443"},
		{name, "a.x", "a.x", "https://a.x/b", "a.x"},
		{name, "a.x", "a.x", "https://b.x/b", "421"},
		{name, "a.x", "a.x", "http://a.x/b", "421"},
		{name, "a.x", "a.x", "https://u@a.x/b", "403"},
		{name, "a.x", "a.x", "https://a.x?b", "a.x"},
		{name, "a.x", "a.x", "*", "403"},
		{bare, "", "192.0.2.1", "/", "192.0.2.1"},
		{bare, "", "a.x", "/", "421"},
		{bare, "a.x", "a.x", "/", "a.x"},
		{bare, "a.x", "b.x", "/", "421"},
	} {
		request, err := NewRequest(Parts{
			Scheme: "https", Method: "GET", Target: c.target, Host: c.host, Header: http.Header{}, ServerName: c.sni,
		}, c.to, Kept{})
		got := ""
		var fault *Fault
		if errors.As(err, &fault) {
			got = fmt.Sprint(fault.Status)
		} else {
			got = request.Send
		}
		if got != c.want {
			t.Errorf("%+v: got %s", c, got)
		}
	}
	for text, want := range map[string]string{
		"Bücher.DE.": "xn--bcher-kva.de", "_x.A": "_x.a", "[::1]": "::1", "::ffff:1.2.3.4": "1.2.3.4", "a..b": "", "a..": "", "": "",
		"a b": "", "a.x%00": "",
	} {
		if got, _ := CanonicalHost(text); got != want {
			t.Errorf("%q: got %q, want %q", text, got, want)
		}
	}
}

func TestOverridesOfMethodsAndPathsAreRemovedWhereTheyCount(t *testing.T) {
	header := func() http.Header {
		return http.Header{
			"X-Http-Method-Override": {"DELETE"}, "X-Method-Override": {"DELETE"}, "X-Http-Method": {"DELETE"}, "X-Other": {"1"},
			"X_Original_Url": {"/no"},
		}
	}
	without := func(header http.Header, name string) http.Header {
		delete(header, name)
		return header
	}
	const query = "a=1&_method=DELETE&%5Fmethod=x&x-http-method-override=DELETE"
	for text, want := range map[string]string{
		`{"action":"allow","methods":["POST"]}`: "map[X-Other:[1] X_Original_Url:[/no]] a=1",
		`{"action":"allow","paths":["/"]}`:      fmt.Sprint(without(header(), "X_Original_Url"), " ", query),
	} {
		request, err := NewRequest(Parts{
			Scheme: "https", Method: "POST", Target: "/?" + query, Host: "a.x", Header: header(),
		}, Destination{Name: "a.x", Port: 443}, rules(t, text))
		if err != nil {
			t.Fatal(err)
		}
		if got := fmt.Sprint(request.Header, " ", request.Query.Send); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
}

func TestHeadersThatSayWhereARequestEndsHaveNoTwins(t *testing.T) {
	header := http.Header{"Content_length": {"0"}, "Transfer_Encoding": {"chunked"}, "X_a": {"1"}, "HOST_": {"1"}}
	if _, err := NewRequest(Parts{
		Scheme: "https", Method: "POST", Target: "/", Host: "a.x", Header: header,
	}, Destination{Name: "a.x", Port: 443}, Kept{}); err != nil || fmt.Sprint(header) != "map[HOST_:[1] X_a:[1]]" {
		t.Errorf("%v, %v", header, err)
	}
}

func TestConnectAndTraceAreNeverLetThrough(t *testing.T) {
	for _, method := range []string{"CONNECT", "TRACE"} {
		if got := ask(t, rules(t, `{"action":"allow"}`), method+" /", ""); got.Action != "403" {
			t.Errorf("%s: %s", method, got.Action)
		}
	}
}

func TestRulesThatAreNotValid(t *testing.T) {
	for _, text := range []string{
		`{"action":"maybe"}`, `{"action":"allow","unknown":1}`, `{"action":"allow","protocol":"udp"}`,
		`{"action":"deny","set_headers":{"a":"b"}}`, `{"action":"allow","set_headers":{"host":"b"}}`,
		`{"action":"allow","set_headers":{"a":"b\r\nc: d"}}`, `{"action":"allow","remove_headers":["te"]}`,
		`{"action":"allow","inject":[{"secret":"s","into":"cookie","key":"k"}]}`,
		`{"action":"allow","inject":[{"secret":"s","into":"header","key":"host"}]}`,
		`{"action":"allow","inject":[{"secret":"s","into":"header","key":"a","format":"x"}]}`,
		`{"action":"allow","inject":[{"secret":"s","into":"header","key":"a","format":"{other}"}]}`,
		`{"action":"allow","inject":[{"secret":"s","into":"header","key":"a","format":"{}}"}]}`,
		`{"action":"allow","inject":[{"secret":"s","into":"header","key":"a","format":"{a{}"}]}`,
		`{"action":"allow","inject":[{"into":"header","key":"a"}]}`,
		`{"action":"allow","inject":[{"into":"header","key":"a","format":"{{}}"}]}`,
		`{"action":"allow","limit":{"requests":1}}`, `{"action":"allow","max_body_bytes":-1}`, `[]`, `{`,
	} {
		if _, err := ParseRules([]json.RawMessage{json.RawMessage(text)}); err == nil {
			t.Errorf("%s was read", text)
		}
	}
}

func TestSetText(t *testing.T) {
	for _, c := range []struct{ body, path, want string }{
		{`{"a" : 1, "b":2 }`, "a", `{"a" : "s\"", "b":2 }`},
		{`{"a":{"b":[1,{"c":null}]}}`, "a.b.1.c", `{"a":{"b":[1,{"c":"s\""}]}}`},
		{`{ }`, "a.b", `{ "a":{"b":"s\""}}`},
		{`{"x":1}`, "a", `{"x":1,"a":"s\""}`},
		{`[]`, "a", ""},
		{`{"a":[]}`, "a.0", ""},
		{`{"A":1}`, "a", ""},
		{`{`, "a", ""},
	} {
		got, err := SetText([]byte(c.body), c.path, `s"`)
		if string(got) != c.want || (err == nil) != (c.want != "") {
			t.Errorf("%s %s: got %s, %v", c.body, c.path, got, err)
		}
	}
}

// naive turns a pattern into a regular expression.
func naive(pattern string, path bool) *regexp.Regexp {
	text := regexp.QuoteMeta(pattern)
	if path {
		text = regexp.MustCompile(`(\\\*){2,}`).ReplaceAllString(text, "\x00")
		text = strings.ReplaceAll(text, `\*`, "[^/]*")
		text = strings.ReplaceAll(text, "\x00", "(?s:.*)")
	} else {
		text = regexp.MustCompile(`(\\\*)+`).ReplaceAllString(text, "(?s:.*)")
	}
	return regexp.MustCompile("^(?:" + text + ")$")
}

func FuzzGlob(f *testing.F) {
	for _, pattern := range []string{"", "*", "**", "/a/*/b", "/**/b", "a*b*c", "/*a/**/b*/c", "**a*b**"} {
		for _, text := range []string{"", "/", "/a/x/b", "/a/x/y/b", "abcbc", "/xa/y/z/bq/c", "ab/ab/b"} {
			f.Add(pattern, text)
		}
	}
	f.Fuzz(func(t *testing.T, pattern, text string) {
		if len(pattern) > 50 || len(text) > 200 || strings.ContainsAny(pattern, "%\x00") {
			return
		}
		if !utf8.ValidString(pattern) || !utf8.ValidString(text) {
			return
		}
		for _, path := range []bool{true, false} {
			compiled := compileGlob(pattern, path)
			if got, want := compiled.match(text), naive(pattern, path).MatchString(text); got != want {
				t.Errorf("%q on %q, path %v: got %v", pattern, text, path, got)
			}
		}
	})
}

func FuzzNormalise(f *testing.F) {
	for _, text := range []string{"/", "//", "/a/../b", "/%2e%2e/", "/a%2Fb", "/a;b/c", "/..;/x", "/%", "/a/./", "/%5c", "/é"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		path, err := NormalisePath(text)
		if err != nil {
			return
		}
		again, err := NormalisePath(path.Send)
		if err != nil || again.Send != path.Send {
			t.Errorf("%q becomes %q and then %q, %v", text, path.Send, again.Send, err)
		}
		for _, view := range path.Views {
			if hasDots(view) || !strings.HasPrefix(view, "/") {
				t.Errorf("%q has the view %q", text, view)
			}
		}
		if strings.ContainsAny(path.Send, "\\ #?\"<>\x00\r\n\t") || strings.Contains(strings.ToLower(path.Send), "%5c") {
			t.Errorf("%q is sent as %q", text, path.Send)
		}
	})
}

func FuzzDocument(f *testing.F) {
	for _, text := range []string{
		`{}`, `[1,2.5e3,-0,"x"]`, `{"a":{"b":null,"c":true}}`, `"\ud83d\ude00"`, `{"a":1,"A":2}`, `01`, `[1,]`, `"\u00zz"`, `-`, `1e999`,
	} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		root, err := parseDocument(body)
		if err != nil {
			return
		}
		var other any
		reading := json.NewDecoder(bytes.NewReader(body))
		reading.UseNumber() // a number may be too large for Go's
		if err := reading.Decode(&other); err != nil {
			t.Fatalf("%q is read as JSON: %v", body, err)
		}
		compare(t, root, other)
	})
}

func compare(t *testing.T, found *node, other any) {
	t.Helper()
	switch value := other.(type) {
	case string:
		if found.kind != kindText || found.text != value {
			t.Errorf("%q is not %q", found.text, value)
		}
	case []any:
		for i, each := range value {
			compare(t, found.children[i], each)
		}
	case map[string]any:
		if len(value) != len(found.keys) {
			t.Errorf("%v are not the keys of %v", found.keys, value)
		}
		for i, key := range found.keys {
			compare(t, found.children[i], value[key])
		}
	}
}

func FuzzJudge(f *testing.F) {
	f.Add("GET", "/a/b?c=d", "a.x", `{"model":"a"}`)
	f.Add("POST", "https://a.x//%2f", "a.x:443", `[`)
	texts := []string{
		`"methods":["GET","POST"]`, `"paths":["/a/**","/*"]`, `"query":{"c":["d*"]}`, `"json":{"model":["a*"]}`,
		`"mcp":{"tools":["a"]}`, `"max_body_bytes":5`,
	}
	f.Fuzz(func(t *testing.T, method, target, host, body string) {
		for _, text := range texts {
			judge := func(kept Kept) (Verdict, error) {
				request, err := NewRequest(Parts{
					Scheme: "https", Method: method, Target: target, Host: host, Header: http.Header{}, Length: int64(len(body)),
					Body: func() Body { return Body{Bytes: []byte(body)} },
				}, Destination{Name: "a.x", Port: 443}, kept)
				if err != nil {
					return Verdict{}, err
				}
				return Judge(kept, request, false), nil
			}
			allowed, err := judge(rules(t, `{"action":"allow",`+text+`}`))
			if err != nil {
				return
			}
			denied, err := judge(rules(t, `{"action":"deny",`+text+`}`, `{"action":"allow"}`))
			// Unless it is unclear, one of the two lets it through. Never do both.
			if err == nil && allowed.Action == Allow && denied.Action == Allow {
				t.Errorf("%s: %s %s %s is both inside and outside", text, method, target, body)
			}
		}
	})
}

func BenchmarkJudge1000Rules(b *testing.B) {
	texts := make([]string, 1000)
	for i := range texts {
		texts[i] = fmt.Sprintf(`{"action":"allow","methods":["GET"],"paths":["/repos/%d/**"]}`, i)
	}
	kept := rules(b, texts...)
	request, err := NewRequest(Parts{
		Scheme: "https", Method: "GET", Target: "/repos/999/x", Host: "a.x", Header: http.Header{},
	}, Destination{Name: "a.x", Port: 443}, kept)
	if err != nil {
		b.Fatal(err)
	}
	times := []time.Duration{}
	for b.Loop() {
		began := time.Now()
		if got := Judge(kept, request, false); got.Action != Allow {
			b.Fatal(got)
		}
		times = append(times, time.Since(began))
	}
	slices.Sort(times)
	b.ReportMetric(float64(times[len(times)*99/100].Nanoseconds()), "p99-ns")
}
