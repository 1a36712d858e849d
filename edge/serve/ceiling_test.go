package serve

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"atoll/edge/control"
	"atoll/policy"
)

// under is a policy's content with a ceiling.
func under(rules ...string) dict {
	texts := make([]json.RawMessage, len(rules))
	for i, each := range rules {
		texts[i] = json.RawMessage(each)
	}
	return dict{"ceiling": dict{"rules": texts}, "secrets": dict{"gh": token, "up": "..", "over": "DELETE"}}
}

func TestARequestMustPassThePolicyAndTheCeiling(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.secure("a.x", true, echo)
	const gets, reads = `{"action":"allow","methods":["GET"]}`, `{"action":"allow","name":"reading","paths":["/open/**"]}`
	for _, c := range []struct {
		own, ceiling, method, path string
		want                       int
		says                       string
	}{
		{allow, gets, "GET", "/", 200, ""},
		{allow, gets, "POST", "/", 403, `"ceiling":true`},
		{gets, allow, "POST", "/", 403, `"ceiling":false`},
		{gets, reads, "GET", "/open/a", 200, ""},
		{gets, reads, "POST", "/open/a", 403, "the egress policy of this sandbox denies"},
		{gets, reads, "GET", "/shut", 403, "the egress ceiling of this sandbox's team denies this request: no rule allows it"},
		{gets, `{"action":"deny","name":"never"}`, "GET", "/", 403, `"rule":"never","ceiling":true`},
		{gets, reads, "GET", "/open/../shut", 403, `"ceiling":true`},
	} {
		w.policyWith(under(c.ceiling), c.own)
		got := do(t, w.client(), c.method, "https://a.x"+c.path, "")
		if got.StatusCode != c.want {
			t.Errorf("%v gives %d %s", c, got.StatusCode, got.text)
		}
		contains(t, got.text, c.says)
	}
	w.policyWith(under(), allow)
	expect(t, do(t, w.client(), "GET", "https://a.x/", "").StatusCode, 403)
	eventually(t, "the edge tells of both", func() bool {
		told := map[string]bool{}
		w.mu.Lock()
		defer w.mu.Unlock()
		for _, each := range w.entries {
			told[fmt.Sprint(each.Ceiling, each.Reason)] = true
		}
		return told["truethe team's ceiling: rule never decides"] && told["falseno rule allows it; rule 1 allows it with the method GET"]
	})
}

func TestNoChangeLeadsPastTheCeiling(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	arrived := &recorder{}
	w.secure("a.x", true, arrived.ServeHTTP)
	const js = "application/json"
	field := inject("json", "model", "")
	for _, c := range []struct {
		what, own, ceiling, method, target, body string
		passes                                   bool
	}{
		{"a path", inject("path", "PLACE", ""), `{"action":"allow","paths":["/open/**"]}`, "GET", "/open/PLACE", "", true},
		{"a path upwards", `{"action":"allow","inject":[{"secret":"up","into":"path","key":"PLACE"}]}`, `{"action":"allow","paths":["/open/**"]}`, "GET", "/open/PLACE/shut", "", false},
		{"a query", inject("query", "key", ""), `{"action":"allow","query":{"key":["mine"]}}`, "GET", "/?key=mine", "", false},
		{"a query that is wanted", inject("query", "key", ""), `{"action":"allow","query":{"key":["tok*"]}}`, "GET", "/", "", true},
		{"a field", field, `{"action":"allow","json":{"model":["mine"]}}`, "POST", "/", `{"model":"mine"}`, false},
		{"a field that is denied", field, `{"action":"deny","json":{"model":["tok*"]}},{"action":"allow"}`, "POST", "/", `{"model":"mine"}`, false},
		{"another field", field, `{"action":"allow","json":{"safe":["yes"]}}`, "POST", "/", `{"safe":"yes"}`, true},
		{"a header", `{"action":"allow","set_headers":{"X":"2"}}`, `{"action":"allow","headers":{"x":["1"]}}`, "GET", "/", "", false},
		{"a removed header", `{"action":"allow","remove_headers":["X"]}`, `{"action":"allow","headers":{"x":["1"]}}`, "GET", "/", "", false},
		{"a wanted header", `{"action":"allow","set_headers":{"X":"2"}}`, `{"action":"allow","headers":{"x":["2"]}}`, "GET", "/", "", true},
		{"another type", `{"action":"allow","set_headers":{"Content-Type":"text/plain"}}`, `{"action":"allow","json":{"safe":["yes"]}}`, "POST", "/", `{"safe":"yes"}`, false},
		{"a longer body", field, `{"action":"allow","max_body_bytes":20}`, "POST", "/", `{"a":1}`, false},
	} {
		w.policyWith(under(strings.Split(strings.ReplaceAll(c.ceiling, "},{", "}\n{"), "\n")...), c.own)
		before := arrived.all()
		got := do(t, w.client(), c.method, "https://a.x"+c.target, c.body, "Content-Type", js, "X", "1")
		if passed := got.StatusCode == 200; passed != c.passes || passed == (arrived.all() == before) {
			t.Errorf("%s: %d %s; arrived: %s", c.what, got.StatusCode, got.text, arrived.all())
		}
		if strings.Contains(got.text, token) {
			t.Errorf("%s: the refusal has the secret: %s", c.what, got.text)
		}
	}
}

func TestAMethodInAHeaderOrAParameterLeadsPastNoCeiling(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.secure("a.x", true, func(writer http.ResponseWriter, request *http.Request) {
		io.WriteString(writer, request.Header.Get("X-HTTP-Method-Override")+request.URL.Query().Get("_method"))
	})
	const gets = `{"action":"allow","methods":["GET"]}`
	for _, own := range []string{
		allow, `{"action":"allow","set_headers":{"X-HTTP-Method-Override":"DELETE"}}`,
		`{"action":"allow","inject":[{"secret":"over","into":"query","key":"_method"}]}`,
	} {
		w.policyWith(under(gets), own)
		got := do(t, w.client(), "GET", "https://a.x/?_method=DELETE", "", "X-HTTP-Method-Override", "DELETE")
		expect(t, got.StatusCode, 200)
		expect(t, got.text, "")
	}
}

func TestABodyOfUnknownLengthIsCutByTheCeiling(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.server("a.x", func(_ http.ResponseWriter, request *http.Request) { io.Copy(io.Discard, request.Body) })
	w.policyWith(under(`{"action":"allow","max_body_bytes":10}`), `{"action":"allow","max_body_bytes":1000}`)
	for body, want := range map[string]int{"0123456789": 200, "0123456789+": 403} {
		request, err := http.NewRequest("POST", "http://a.x/", io.NopCloser(strings.NewReader(body)))
		must(t, err)
		request.ContentLength = -1
		response, err := w.client().Do(request)
		must(t, err)
		text, _ := io.ReadAll(response.Body)
		response.Body.Close()
		expect(t, response.StatusCode, want)
		if want == 403 {
			contains(t, string(text), "ceiling of this sandbox's team denies this request: its body is too long")
		}
	}
}

func TestTheCeilingUnplugsAlsoWhatThePolicyDenies(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.secure("a.x", true, func(http.ResponseWriter, *http.Request) { t.Error("it arrived") })
	for i, own := range []string{inspected, `{"action":"deny","paths":["/spy"]}`} {
		w.policyWith(under(`{"action":"unplug","name":"spying","paths":["/spy"]}`, inspected), own)
		if response, err := w.client().Get("https://a.x/spy"); err == nil {
			response.Body.Close()
		}
		eventually(t, "it is unplugged", func() bool { return len(w.unplugged()) == i+1 })
		expect(t, w.unplugged()[i].Reason, "the team's ceiling: rule spying decides")
	}
}

func TestOtherProtocolsPassOnlyIfTheCeilingLetsThem(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	greeter(w, "a.x", false)
	w.policyWith(under(allow), allow)
	hear(t, w.take("a.x", 25), "x\n", "220 hello\r\nx\n")
	w.policyWith(under(inspected), allow)
	expect(t, talk(t, w.take("a.x", 25), "\x00\x01 binary\n"), "")
}

func TestANewCeilingReachesWhatIsGoingOn(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.secure("a.x", true, func(writer http.ResponseWriter, request *http.Request) {
		writer.(http.Flusher).Flush()
		<-request.Context().Done()
	})
	own := `{"action":"allow","set_headers":{"X":"2"}}`
	for _, c := range []struct {
		ceiling string
		cut     bool
	}{
		{`{"action":"allow","headers":{"x":["2"]}}`, false}, // as it was sent
		{`{"action":"allow","headers":{"x":["1"]}}`, true},  // as it came
		{`{"action":"deny"}`, true},
	} {
		w.policy(own)
		response, err := w.client().Do(requestWith(t, "https://a.x/", "X", "1"))
		must(t, err)
		w.policyWith(under(c.ceiling), own)
		w.sendRules(0)
		ended := make(chan error, 1)
		go func() {
			_, err := io.ReadAll(response.Body)
			ended <- err
		}()
		if !c.cut {
			w.policyWith(under(), own)
			w.sendRules(0)
		}
		if err := <-ended; err == nil {
			t.Error("it was not cut: ", c)
		}
		response.Body.Close()
	}
}

func requestWith(t testing.TB, url string, headers ...string) *http.Request {
	t.Helper()
	request, err := http.NewRequest("GET", url, nil)
	must(t, err)
	for i := 0; i < len(headers); i += 2 {
		request.Header.Set(headers[i], headers[i+1])
	}
	return request
}

func TestACeilingThatCannotBeReadOrFitsNotAllowsNothing(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.server("a.x", func(http.ResponseWriter, *http.Request) { t.Error("it arrived") })
	for _, ceiling := range []string{
		`{"action":"allow","set_headers":{"X":"1"}}`, `{"action":"allow","limit":{"bytes_s":1}}`,
		`{"action":"allow","hosts":["b.x"]}`, `{"action":"fly"}`,
	} {
		w.versions[w.sandbox]++
		content := under(ceiling)
		content["rules"] = []json.RawMessage{json.RawMessage(allow)}
		message := control.Message{Op: "policy", Sandbox: w.sandbox, Version: w.versions[w.sandbox]}
		if err := w.edge.Handle(&message, memfd(t, content)); err != nil {
			t.Log("edge: ", err)
		}
		got := do(t, w.client(0), "GET", "http://a.x/", "")
		expect(t, got.StatusCode, 403)
	}
}

func TestAQuestionIsJudgedByBoth(t *testing.T) {
	t.Parallel()
	ask := func(own, ceiling, method, url string) control.Judged {
		document := under(ceiling)
		document["rules"] = []json.RawMessage{json.RawMessage(own)}
		question := dict{
			"policy":      document,
			"destination": policy.Asked{Name: "a.x", Port: 443, Addresses: []policy.Known{{Address: "192.0.2.1"}}},
			"request":     dict{"scheme": "https", "method": method, "url": url, "headers": [][2]string{}},
		}
		answer, err := Judge(&control.Message{Op: "judge", ID: 1}, memfd(t, question))
		must(t, err)
		return *answer
	}
	const gets = `{"action":"allow","methods":["GET"]}`
	got := ask(allow, gets, "POST", "https://a.x/")
	expect(t, []any{got.Action, got.Ceiling, got.Reason}, []any{"deny", true, "the team's ceiling: no rule allows it; rule 1 allows it with the method GET"})
	got = ask(gets, allow, "POST", "https://a.x/")
	expect(t, []any{got.Action, got.Ceiling}, []any{"deny", false})
	got = ask(inject("query", "key", ""), `{"action":"allow","query":{"key":["tok*"]}}`, "GET", "https://a.x/")
	expect(t, []any{got.Action, *got.Rule, got.Changes}, []any{"allow", 0, []string{"inject gh into query key"}})
	got = ask(inject("query", "key", ""), `{"action":"deny","query":{"key":["tok*"]}}`, "GET", "https://a.x/")
	expect(t, []any{got.Action, got.Ceiling}, []any{"deny", true})
	got = ask(inject("json", "model", ""), inspected, "POST", "https://a.x/")
	expect(t, got.Action, "deny")
}
