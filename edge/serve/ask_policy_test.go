package serve

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"atoll/edge/control"
)

func TestOtherRulesDecideAboutWhatIsHeld(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		rules  []string
		status int
		ended  string
	}{
		{[]string{`{"action":"deny","paths":["/other"]}`, asking}, 0, ""},
		{[]string{`{"action":"allow","methods":["POST"]}`}, 200, "changed 2 0"},
		{[]string{`{"action":"deny"}`}, 403, "changed 0 2"},
		{[]string{`{"action":"ask","name":"another"}`}, 0, "changed 0 2"},
	} {
		w := askWorld(t, asking)
		var came []<-chan reply
		for i := range 2 {
			came = append(came, later(t, w.clientOver(i == 0), "POST", "https://a.x/pay", "10", "User-Agent", "x"))
		}
		w.counted(2)
		before := w.ask(1)
		w.policy(c.rules...)
		w.sendRules(slices.Collect(upTo(len(c.rules)))...)
		if c.status == 0 {
			time.Sleep(100 * time.Millisecond)
			w.counted(2)
			now := before
			if c.ended != "" {
				expect(t, w.ends(1), []string{c.ended})
				expect(t, w.answer(before, control.Message{Action: "allow"}), errUnknownAsk.Error())
				now = w.ask(2)
			}
			expect(t, w.dialled(), 0)
			expect(t, w.answer(now, control.Message{Action: "allow", ForS: 1}), "")
			c.status = 200
		} else {
			expect(t, w.ends(1), []string{c.ended})
		}
		for _, each := range came {
			expect(t, (<-each).StatusCode, c.status)
		}
		w.counted(0)
	}
}

func upTo(count int) func(func(int) bool) {
	return func(yield func(int) bool) {
		for i := range count {
			if !yield(i) {
				return
			}
		}
	}
}

func TestWhatWasApprovedGoesOnUnderTheSameRule(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.secure("a.x", true, func(writer http.ResponseWriter, request *http.Request) {
		writer.(http.Flusher).Flush()
		<-request.Context().Done()
	})
	w.policy(asking)
	opened := make(chan *http.Response, 1)
	go func() {
		response, err := w.client().Get("https://a.x/")
		if err != nil {
			t.Error(err)
		}
		opened <- response
	}()
	w.approves(w.ask(1))
	response := <-opened
	defer response.Body.Close()
	w.policy(`{"action":"deny","paths":["/other"]}`, asking)
	w.sendRules(0, 1)
	ended := make(chan error, 1)
	go func() {
		_, err := io.ReadAll(response.Body)
		ended <- err
	}()
	select {
	case err := <-ended:
		t.Fatal("it was cut: ", err)
	case <-time.After(200 * time.Millisecond):
	}
	w.policy(`{"action":"ask","name":"another"}`)
	w.sendRules(0)
	if err := <-ended; err == nil {
		t.Error("it was not cut")
	}
	expect(t, len(w.asks(1)), 1)
}

func TestTheNextOwnerHearsOfWhatIsHeld(t *testing.T) {
	t.Parallel()
	w := ownerless(t)
	w.policy(asking)
	first := later(t, w.client(), "POST", "http://a.x/1", "body")
	w.counted(1)
	leave := w.own()
	time.Sleep(100 * time.Millisecond)
	expect(t, len(w.asked.asks), 0)
	claim := func() { w.policy(asking); w.sendRules(0) }
	claim()
	expect(t, w.ask(1).Again, false)
	leave()
	second := later(t, w.client(), "POST", "http://a.x/2", "body")
	w.counted(2)
	leave = w.own()
	claim()
	told := w.asks(3)
	expect(t, fmt.Sprint(told[1].Path, told[1].Again, told[2].Path, told[2].Again), "/1true/2false")
	expect(t, told[1].Ask+told[1].Digest, told[0].Ask+told[0].Digest)
	leave()
	// What ends without an owner is told to the next one that knows of it.
	w.approves(told[1])
	expect(t, (<-first).StatusCode, 200)
	leave = w.own()
	claim()
	expect(t, w.ends(1), []string{"allowed 1 0"})
	w.approves(w.ask(4))
	expect(t, (<-second).StatusCode, 200)
	leave()
}

func TestAnApprovalForSomeTimeIsOfEqualPaths(t *testing.T) {
	t.Parallel()
	w := askWorld(t, asking)
	client := w.client()
	first := later(t, client, "POST", "https://a.x/pay?a", "10")
	expect(t, w.answer(w.ask(1), control.Message{Action: "allow", ForS: 60}), "")
	expect(t, (<-first).StatusCode, 200)
	expect(t, do(t, client, "POST", "https://a.x/pay?a", "another").text, "POST /pay?a  another")
	expect(t, w.ask(1).Path, "/pay?a")
	eventually(t, "it is noted", func() bool {
		w.mu.Lock()
		defer w.mu.Unlock()
		for _, each := range w.entries {
			if each.Action == "allow" && strings.HasPrefix(each.Reason, "approved by a person until 20") {
				return true
			}
		}
		return false
	})
	for i, each := range []struct{ method, path string }{{"PUT", "/pay?a"}, {"POST", "/pay?b"}, {"POST", "/pay"}} {
		other := later(t, client, each.method, "https://a.x"+each.path, "10")
		expect(t, w.answer(w.ask(2+i), control.Message{Action: "allow", ForS: 0.001}), "")
		<-other
	}
	time.Sleep(2 * time.Millisecond)
	late := later(t, client, "PUT", "https://a.x/pay?a", "10")
	w.approves(w.ask(5))
	expect(t, (<-late).StatusCode, 200)
	// Another rule is another one to ask by.
	w.policy(`{"action":"ask","name":"another"}`)
	w.sendRules(0)
	w.policy(asking)
	w.sendRules(0)
	late = later(t, client, "POST", "https://a.x/pay?a", "10")
	w.approves(w.ask(6))
	expect(t, (<-late).StatusCode, 200)
}

func TestASecretGoesIntoAnApprovedRequestAlone(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.secure("a.x", true, func(_ http.ResponseWriter, request *http.Request) {
		expect(t, request.Header.Get("X-Key"), token)
	})
	rule := strings.Replace(inject("header", "X-Key", ""), `"allow"`, `"ask"`, 1)
	w.policyWith(dict{"secrets": dict{"gh": token}}, rule)
	got := later(t, w.client(), "GET", "https://a.x/", "")
	card := w.ask(1)
	if text, _ := json.Marshal(card); strings.Contains(string(text), token) {
		t.Errorf("the ask has the secret: %s", text)
	}
	w.approves(card)
	expect(t, (<-got).StatusCode, 200)
	// One whose changes cannot be made is not asked about.
	w.policyWith(dict{"secrets": dict{}}, rule)
	expect(t, do(t, w.client(), "GET", "https://a.x/", "").StatusCode, 403)
	expect(t, len(w.asks(1)), 1)
}

func TestADigestIsOfEverything(t *testing.T) {
	t.Parallel()
	what := granted{rule: "r", scheme: "https", method: "GET", host: "a.x", sent: "a.x", port: 443, path: "/"}
	header := http.Header{"A": {"1"}, "B": {"2", "3"}}
	same := digestOf(&what, header, []byte("body"), nil)
	expect(t, digestOf(&what, header.Clone(), []byte("body"), nil), same)
	seen := map[string]bool{same: true}
	for _, each := range []string{
		digestOf(&granted{scheme: "http", method: "GET", host: "a.x", sent: "a.x", port: 443, path: "/"}, header, []byte("body"), nil),
		digestOf(&granted{scheme: "https", method: "PUT", host: "a.x", sent: "a.x", port: 443, path: "/"}, header, []byte("body"), nil),
		digestOf(&granted{scheme: "https", method: "GET", host: "a.x", sent: "b.x", port: 443, path: "/"}, header, []byte("body"), nil),
		digestOf(&granted{scheme: "https", method: "GET", host: "a.x", sent: "a.x", port: 44, path: "3/"}, header, []byte("body"), nil),
		digestOf(&what, http.Header{"A": {"1"}, "B": {"3", "2"}}, []byte("body"), nil),
		digestOf(&what, http.Header{"A": {"1", "B"}, "C": {"2", "3"}}, []byte("body"), nil),
		digestOf(&what, http.Header{"A": {"1"}}, []byte("body"), nil),
		digestOf(&what, header, []byte("Body"), nil),
		digestOf(&what, header, []byte("body"), http.Header{"A": {"1"}}),
	} {
		if seen[each] {
			t.Error("two are alike")
		}
		seen[each] = true
	}
	w := askWorld(t, asking)
	one := later(t, w.client(), "POST", "https://a.x/", "10")
	first := w.ask(1)
	other := later(t, w.client(), "POST", "https://a.x/", "1000")
	second := w.ask(2)
	expect(t, first.Digest == second.Digest, false)
	second.Digest = first.Digest
	expect(t, w.answer(second, control.Message{Action: "allow"}), "the digest is not that of the ask")
	w.approves(first)
	expect(t, (<-one).text, "POST /  10")
	expect(t, w.answer(w.ask(2), control.Message{Action: "deny", Code: "ask_denied"}), "")
	expect(t, (<-other).StatusCode, 403)
}

func TestTheCeilingJudgesWhatIsAskedAbout(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.secure("a.x", true, echoing)
	w.policyWith(under(`{"action":"allow","methods":["GET"]}`), asking)
	expect(t, do(t, w.client(), "POST", "https://a.x/", "x").StatusCode, 403)
	got := later(t, w.client(), "GET", "https://a.x/", "")
	card := w.ask(1)
	w.policyWith(under(`{"action":"deny"}`), asking)
	w.sendRules(0)
	reply := <-got
	expect(t, reply.StatusCode, 403)
	contains(t, reply.text, `"ceiling":true`)
	expect(t, w.answer(card, control.Message{Action: "allow"}), errUnknownAsk.Error())
	for _, document := range []dict{under(asking)} {
		document["rules"] = []any{}
		err := w.edge.Handle(&control.Message{Op: "policy", Sandbox: "s", Version: 9}, memfd(t, document))
		if err == nil || !strings.Contains(err.Error(), "a ceiling only decides") {
			t.Error(err)
		}
	}
}

func TestAPolicyThatObservesHoldsNothing(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.secure("a.x", true, echoing)
	w.policyWith(dict{"observe": true}, asking)
	expect(t, do(t, w.client(), "GET", "https://a.x/", "").StatusCode, 200)
	w.noted("1 ask: rule pay decides")
	expect(t, w.entries[0].Observed, true)
}

func TestWhatIsNotHTTPIsNotAskedAbout(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	greeter(w, "a.x", false)
	w.policy(`{"action":"ask","ports":["1-65535"]}`, allow)
	expect(t, talk(t, w.take("a.x", 25), "\x00\x01 binary\n"), "")
	w.noted("1 deny: it is not HTTP, and rule 1 can ask about requests only")
}

func TestAJudgementSaysThatARuleAsks(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ rule, method, want string }{
		{`{"action":"ask","hosts":["a.x"],"methods":["POST"],"set_headers":{"x-team":"a"}}`, "POST", "ask 0 [set x-team]"},
		{`{"action":"ask","hosts":["a.x"],"inject":[{"secret":"no","into":"header","key":"x"}]}`, "POST", "deny 0 []"},
	} {
		answer, err := Judge(&control.Message{Op: "judge"}, memfd(t, dict{
			"policy":      dict{"rules": []any{json.RawMessage(c.rule)}},
			"destination": dict{"name": "a.x", "port": 443, "addresses": []dict{{"address": "192.0.2.1"}}},
			"request":     dict{"scheme": "https", "method": c.method, "url": "https://a.x/"},
		}))
		must(t, err)
		expect(t, fmt.Sprint(answer.Action, " ", *answer.Rule, " ", answer.Changes), c.want)
	}
}

func TestASandboxThatIsUnpluggedAsksNoMore(t *testing.T) {
	t.Parallel()
	w := askWorld(t, `{"action":"unplug","paths":["/trap"]}`, asking)
	got := later(t, w.client(), "GET", "https://a.x/", "")
	card := w.ask(1)
	<-later(t, w.client(), "GET", "https://a.x/trap", "")
	expect(t, (<-got).StatusCode, 0)
	expect(t, w.ends(1), []string{"gone 0 0"})
	expect(t, w.answer(card, control.Message{Action: "allow"}), errUnknownAsk.Error())
	expect(t, w.dialled(), 0)
}

func TestAnAskIsToldWithTheIndexOfItsRuleInTheCurrentPolicy(t *testing.T) {
	t.Parallel()
	w := ownerless(t)
	w.policy(asking, `{"action":"ask","name":"other"}`)
	one := later(t, w.client(), "GET", "http://a.x/", "")
	other := later(t, w.client(1), "GET", "http://a.x/", "")
	w.counted(2)
	defer w.own()()
	w.policy(`{"action":"deny"}`, asking)
	card := w.ask(1)
	expect(t, card.Rule, 1)
	w.sendRules(1)
	w.counted(2)
	expect(t, w.answer(card, control.Message{Action: "allow", ForS: 1}), "")
	expect(t, (<-one).StatusCode, 200)
	expect(t, (<-other).StatusCode, 200)
}

func TestNobodyIsAskedAboutWhatALimitRefuses(t *testing.T) {
	t.Parallel()
	for limit, c := range map[string]struct {
		status int
		code   string
	}{
		`{"requests":1,"per_s":600}`: {429, "egress_limited"},
		`{"total_bytes":1}`:          {403, "egress_denied"},
	} {
		w := askWorld(t, `{"action":"ask","limit":`+limit+`}`)
		first := later(t, w.client(), "POST", "https://a.x/", "10")
		w.approves(w.ask(1))
		<-first
		got := do(t, w.client(), "POST", "https://a.x/", "10")
		expect(t, got.StatusCode, c.status)
		contains(t, got.text, `"error":"`+c.code+`"`)
		w.ask(1)
	}
}
