package policy

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"
)

func TestAnAskIsReadOrRefused(t *testing.T) {
	for text, want := range map[string]time.Duration{
		`{"action":"ask"}`:                                     300 * time.Second,
		`{"action":"ask","ask":{}}`:                            300 * time.Second,
		`{"action":"ask","ask":{"deadline_s":1.5}}`:            1500 * time.Millisecond,
		`{"action":"ask","ask":{"approvals":2}}`:               300 * time.Second,
		`{"action":"ask","set_headers":{"x":"1"},"limit":{}}`:  300 * time.Second,
		`{"action":"ask","ask":{"deadline_s":0.5}}`:            0,
		`{"action":"ask","ask":{"deadline_s":3601}}`:           0,
		`{"action":"ask","ask":{"approvals":3}}`:               0,
		`{"action":"ask","ask":{"approvals":1.5}}`:             0,
		`{"action":"ask","ask":{"deadline":1}}`:                0,
		`{"action":"allow","ask":{}}`:                          0,
		`{"action":"deny","ask":{"deadline_s":1}}`:             0,
		`{"action":"deny","set_headers":{"x":"1"},"ask":null}`: 0,
	} {
		found, err := ParseRules([]json.RawMessage{json.RawMessage(text)})
		if want == 0 {
			if err == nil {
				t.Errorf("%s is taken", text)
			}
			continue
		}
		if err != nil || found[0].Deadline() != want || !found[0].NeedsHTTP() {
			t.Errorf("%s: %v, %v", text, found, err)
		}
	}
}

func TestNothingSlipsPastARuleThatAsksToALaterOne(t *testing.T) {
	const js = "application/json"
	for _, c := range []struct{ condition, line, body, want string }{
		{``, "GET /", "", "ask"},
		{`,"methods":["POST"]`, "GET /", "", "allow"},
		{`,"paths":["/Pay"]`, "GET /pAY", "", "ask"},
		{`,"paths":["/pay/*"]`, "GET /pay/b%2Fc", "", "ask"},
		{`,"paths":["/pay"]`, "GET /other", "", "allow"},
		{`,"query":{"a":["1"]}`, "GET /?a=1&a=2", "", "ask"},
		{`,"json":{"a":["1"]}`, "POST /", `{"a":1,"a":2}`, "ask"},
		{`,"json":{"a":["1"]}`, "POST /", `{"a":2}`, "allow"},
	} {
		kept := rules(t, `{"action":"ask"`+c.condition+`}`, `{"action":"allow"}`)
		got := ask(t, kept, c.line, c.body, "Content-Type", js)
		if got.Action != c.want || got.Passes() != (c.want == "allow") || got.Asks() != (c.want == "ask") {
			t.Errorf("%+v: %+v", c, got)
		}
	}
	got := ask(t, rules(t, `{"action":"ask","methods":["POST"],"name":"pay"}`), "GET /", "")
	if got.Why() != "no rule allows it; rule pay asks about it with the method POST" {
		t.Error(got.Why())
	}
}

func TestOnlyRequestsCanBeAskedAbout(t *testing.T) {
	for _, c := range []struct {
		observe bool
		first   string
		want    string
	}{
		{false, `{"action":"ask"}`, "deny it is not HTTP, and rule 1 can ask about requests only"},
		{true, `{"action":"ask"}`, "deny it is not HTTP, and rule 1 can ask about requests only observed"},
		{false, `{"action":"allow","name":"x"}`, "allow rule x decides"},
		{false, `{"action":"allow","methods":["GET"]}`, "deny it is not HTTP, and rule 2 can ask about requests only"},
		{false, `{"action":"unplug"}`, "unplug rule 1 decides"},
	} {
		got := JudgeRaw(rules(t, c.first, `{"action":"ask"}`, `{"action":"allow"}`), c.observe)
		told := got.Action + " " + got.Why()
		if got.Observed {
			told += " observed"
		}
		if told != c.want {
			t.Errorf("%+v: %q", c, told)
		}
	}
}

func TestAPolicyThatObservesAsksNobody(t *testing.T) {
	kept := rules(t, `{"action":"ask"}`)
	request, err := NewRequest(Parts{Scheme: "http", Method: "GET", Target: "/", Host: "a.x"}, Destination{Name: "a.x", Port: 80}, kept)
	if err != nil {
		t.Fatal(err)
	}
	if got := Judge(kept, request, true); got.Action != Ask || !got.Observed || !got.Passes() || got.Asks() {
		t.Errorf("%+v", got)
	}
}

func TestNobodyIsAskedAboutWhatTheCeilingDenies(t *testing.T) {
	asks, approved := Verdict{Action: Ask}, (&Verdict{Action: Ask}).Approved("by a person")
	for over, want := range map[string]string{Allow: Ask, Deny: Deny, Unplug: Unplug} {
		if got := Bounded(asks, &Verdict{Action: over}); got.Action != want {
			t.Errorf("under %s: %+v", over, got)
		}
	}
	if got := Bounded(approved, &Verdict{Action: Deny}); got.Action != Deny || !got.Ceiling {
		t.Errorf("approved: %+v", got)
	}
}

// A rule that asks lets somebody get where one that allows would, and keeps what it cannot ask about from later rules.
func TestPlacesOfARuleThatAsks(t *testing.T) {
	const later = `{"action":"allow","hosts":["*","host.atoll.internal"],"addresses":["0.0.0.0/0","10.0.0.0/8"],"ports":["1-65535"]}`
	for _, c := range []struct{ rule, name, address, want string }{
		{`"hosts":["a.x"]`, "a.x", "203.0.113.1", "inspect [0 1]"},
		{`"hosts":["a.x"]`, "b.x", "203.0.113.1", "allow []"},
		{`"hosts":["a.x"],"ports":[80]`, "a.x", "203.0.113.1", "allow []"},
		{`"hosts":["a.x"]`, "a.x", "10.0.0.1", "deny a.x leads to an address that is private"},
		{`"hosts":["a.x"],"addresses":["10.0.0.0/8"]`, "a.x", "10.0.0.1", "inspect [0 1]"},
		{`"hosts":["a.x"],"addresses":["10.0.0.0/8"]`, "a.x", "203.0.113.1", "allow []"},
		{`"hosts":["*"]`, "host.atoll.internal", "127.0.0.1", "deny host.atoll.internal leads to an address that is loopback"},
		{`"hosts":["host.atoll.internal"]`, "host.atoll.internal", "127.0.0.1", "inspect [0 1]"},
		{`"hosts":["*.x"]`, "p.x", "203.0.113.1", "deny rule 1 cannot ask about requests to p.x:443"},
	} {
		gate := gatekeeper(t, Terms{Passthrough: []string{"p.x"}}, `{"action":"ask",`+c.rule+`}`, later)
		found := gate.Connection(c.name, c.address, 443)
		told := found.Action + " " + found.Reason
		if !found.refuses() {
			told = fmt.Sprint(found.Action, " ", indices(found.Kept))
		}
		if told != c.want {
			t.Errorf("%+v: %q", c, told)
		}
	}
	alone := gatekeeper(t, Terms{}, `{"action":"ask","hosts":["a.x"]}`)
	for name, want := range map[string]string{"a.x": Allow, "b.x": Deny, "host.atoll.internal": Deny} {
		if got := alone.Name(name); got.Action != want {
			t.Errorf("%s: %+v", name, got)
		}
	}
	if !alone.KnowsAddress("a.x", "203.0.113.1") || alone.KnowsAddress("a.x", "10.0.0.1") {
		t.Error("the addresses of a.x are known in another way")
	}
	wide := gatekeeper(t, Terms{Proxy: &Proxy{}}, `{"action":"ask","hosts":["*"]}`, `{"action":"allow","hosts":["db"]}`)
	for name, want := range map[string]string{"a.x": Inspect, "db": Deny} {
		if got := wide.Unresolved(name, 443); got.Action != want {
			t.Errorf("%s: %+v", name, got)
		}
	}
	if got := wide.Name("db"); got.Action != Allow {
		t.Errorf("%+v", got)
	}
}
