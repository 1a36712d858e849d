package policy

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"
)

func gatekeeper(t testing.TB, terms Terms, texts ...string) *Gatekeeper {
	t.Helper()
	raw := make([]json.RawMessage, len(texts))
	for i, text := range texts {
		raw[i] = json.RawMessage(text)
	}
	var err error
	if terms.Rules, err = ParseRules(raw); err != nil {
		t.Fatal(err)
	}
	return NewGatekeeper(terms)
}

func to(name string, addresses ...string) Asked {
	asked := Asked{Name: name, Port: 443}
	for _, each := range addresses {
		asked.Addresses = append(asked.Addresses, Known{Address: each, Own: each == "192.0.2.200"})
	}
	return asked
}

// What the two judges say otherwise is compared by tests/unit/policy/test_go_judge.py, at random.
func TestADestinationIsDecidedAsAGuestComesToIt(t *testing.T) {
	rules := gatekeeper(
		t, Terms{Passthrough: []string{"p.x"}},
		`{"action":"unplug","hosts":["trap.x"],"addresses":["192.0.2.0/24"]}`,
		`{"action":"deny","hosts":["*.x"],"addresses":["198.51.100.0/24"]}`,
		`{"action":"allow","hosts":["*.x"]}`,
		`{"action":"allow","hosts":["host.atoll.internal"],"ports":[443]}`,
		`{"action":"allow","hosts":["web.y","p.x"],"protocol":"http"}`,
	)
	for _, each := range []struct {
		bounds Bounds
		asked  Asked
		want   string
	}{
		{Bounds{Own: rules}, to("a.z"), "deny: no rule allows a.z"},
		{Bounds{Own: rules}, to("a.x"), "resolve"},
		{Bounds{Own: rules}, to("a.x", "203.0.113.1"), "allow at 203.0.113.1"},
		{Bounds{Own: rules}, to("a.x", "198.51.100.1", "10.0.0.1", "203.0.113.1"), "allow at 203.0.113.1"},
		{Bounds{Own: rules}, to("a.x", "10.0.0.1"), "deny: a.x leads to an address that is private"},
		{Bounds{Own: rules}, to("a.x", "198.51.100.1", "10.0.0.1"), "deny: rule 2 denies a.x:443"},
		// A trap is not walked around.
		{Bounds{Own: rules}, to("trap.x", "192.0.2.1", "203.0.113.1"), "unplug: rule 1 unplugs at trap.x:443"},
		{Bounds{Own: rules}, to("a.x", "192.0.2.200"), "deny: a.x leads to an address that is " + thisHost},
		{Bounds{Own: rules}, to("", "198.18.0.1"), "deny: the address stands for no name: resolve the name again"},
		{Bounds{Own: rules}, to(""), "deny: there is neither a name nor an address"},
		{Bounds{Own: rules}, to("Host.Atoll.Internal."), "allow at 127.0.0.1"},
		{Bounds{Own: rules}, to("db.sandbox.atoll.internal"), "deny: no rule exposes a port of db.sandbox.atoll.internal"},
		{Bounds{Own: rules}, to("web.y", "203.0.113.1"), "inspect at 203.0.113.1"},
		{Bounds{Own: rules}, to("p.x", "203.0.113.1"), "allow at 203.0.113.1"},
		{Bounds{}, to("a.x"), "resolve"},
		{Bounds{}, to("a.x", "10.0.0.1", "203.0.113.1"), "allow at 203.0.113.1: every public address is allowed"},
		{Bounds{}, to("", "192.0.2.200"), "deny: 192.0.2.200 is " + thisHost},
		{Bounds{}, to("", "10.0.0.1x"), "deny: '10.0.0.1x' is no address to connect to"},
		{Bounds{}, to("a b"), "deny: 'a b' is no host name"},
		{Bounds{}, to("host.atoll.internal"), "deny: no rule exposes host.atoll.internal"},
		{Bounds{Own: rules, Ceiling: gatekeeper(t, Terms{})}, to("a.x"), "deny: the team's ceiling: no rule allows a.x"},
		{
			Bounds{Own: gatekeeper(t, Terms{Proxy: &Proxy{Hosts: []string{"*.x"}}}, `{"action":"allow","hosts":["*"]}`)},
			to("a.x"), "allow",
		},
	} {
		found := each.bounds.Decide(each.asked)
		told := found.Action
		if found.Resolve {
			told = "resolve"
		}
		if !found.refuses() && found.Address != "" {
			told += " at " + found.Address
		}
		if found.Reason != "" {
			told += ": " + found.Reason
		}
		if told != each.want {
			t.Errorf("%+v: %q, not %q", each.asked, told, each.want)
		}
	}
}

func TestARuleWithAPlaceThatCannotBeReadIsRefused(t *testing.T) {
	for _, text := range []string{
		`"ports":[0]`, `"ports":["2-1"]`, `"ports":["x"]`, `"ports":[65536]`, `"ports":["1-2-3"]`, `"ports":["123456"]`,
		`"addresses":["10.0.0.0/33"]`, `"addresses":["a.x"]`, `"addresses":["fe80::1%eth0"]`,
	} {
		if _, err := ParseRules([]json.RawMessage{json.RawMessage(`{"action":"allow",` + text + `}`)}); err == nil {
			t.Errorf("%s is taken", text)
		}
	}
}

// The largest policy that there may be, and the longest name that a guest can ask for.
func BenchmarkAConnectionByTheLargestPolicy(b *testing.B) {
	texts := make([]string, 1000)
	for i := range texts {
		hosts := []string{`"*"`}
		for j := range 19 {
			hosts = append(hosts, fmt.Sprintf(`"*.%d.%d.example"`, j, i))
		}
		texts[i] = fmt.Sprintf(`{"action":"deny","hosts":[%s],"ports":[%d]}`, strings.Join(hosts, ","), i+1)
	}
	gate := gatekeeper(b, Terms{}, texts...)
	name := strings.Repeat("a.", 122) + "example"
	for b.Loop() {
		gate.Connection(name, "203.0.113.1", 2000)
	}
}

func BenchmarkConnection1000Rules(b *testing.B) {
	texts := make([]string, 1000)
	for i := range texts {
		texts[i] = fmt.Sprintf(`{"action":"allow","hosts":["h%d.example.com"],"ports":[%d]}`, i, i+1)
	}
	keeper := gatekeeper(b, Terms{}, texts...)
	times := []time.Duration{}
	for i := 0; b.Loop(); i++ {
		number := i % len(texts)
		name := fmt.Sprintf("h%d.example.com", number)
		began := time.Now()
		if got := keeper.Connection(name, "192.0.2.1", number+1); got.Action != Allow {
			b.Fatal(got)
		}
		times = append(times, time.Since(began))
	}
	slices.Sort(times)
	b.ReportMetric(float64(times[len(times)*99/100].Nanoseconds()), "p99-ns")
}

func TestAnOpenConnectionIsDecidedAsANewOne(t *testing.T) {
	rules := gatekeeper(
		t, Terms{}, `{"action":"allow","hosts":["host.atoll.internal","db.sandbox.atoll.internal"],"ports":[443]}`,
		`{"action":"allow","hosts":["*.x"]}`,
	)
	for _, each := range []struct {
		name   string
		to     Known
		action string
	}{
		{"host.atoll.internal", Known{Address: "127.0.0.1", Own: true}, Allow},
		{"db.sandbox.atoll.internal", Known{Address: "127.0.0.1", Own: true}, Allow},
		{"web.sandbox.atoll.internal", Known{Address: "127.0.0.1", Own: true}, Deny},
		{"host.atoll.internal", Known{Address: "192.0.2.200", Own: true}, Deny},
		{"a.x", Known{Address: "192.0.2.200", Own: true}, Deny},
		{"a.x", Known{Address: "192.0.2.1"}, Allow},
		{"a.x", Known{}, Deny},
	} {
		if found := (&Bounds{Own: rules}).Connection(each.name, each.to, 443); found.Action != each.action {
			t.Errorf("%s at %v: %+v", each.name, each.to, found)
		}
	}
	if found := (&Bounds{}).Connection("host.atoll.internal", Known{Address: "127.0.0.1", Own: true}, 443); found.Action != Deny {
		t.Errorf("without rules: %+v", found)
	}
}

func TestANameLeadsToWhereSomePortMayBeReached(t *testing.T) {
	wide, narrow := gatekeeper(t, Terms{}, `{"action":"allow"}`), gatekeeper(t, Terms{}, `{"action":"allow","hosts":["a.x"]}`)
	for _, each := range []struct {
		bounds        Bounds
		name, address string
		want          bool
	}{
		{Bounds{}, "a.x", "203.0.113.1", true},
		{Bounds{}, "a.x", "64:ff9b::a00:1", false},
		{Bounds{Own: wide}, "b.x", "203.0.113.1", true},
		{Bounds{Own: wide}, "b.x", "10.0.0.1", false},
		{Bounds{Own: wide, Ceiling: narrow}, "b.x", "203.0.113.1", false},
		{Bounds{Own: wide, Ceiling: narrow}, "a.x", "203.0.113.1", true},
		{Bounds{Own: narrow, Ceiling: wide}, "b.x", "203.0.113.1", false},
	} {
		if each.bounds.LeadsTo(each.name, netip.MustParseAddr(each.address)) != each.want {
			t.Errorf("%+v", each)
		}
	}
}
