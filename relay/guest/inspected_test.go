package guest

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"slices"
	"testing"

	"atoll/policy"
)

const (
	atOne   = `{"action":"allow","hosts":["api.example.com"],"addresses":["203.0.113.1/32"],"protocol":"http"}`
	atOther = `{"action":"allow","hosts":["api.example.com"],"addresses":["203.0.113.2/32"],"protocol":"http"}`
	both    = `{"action":"allow","hosts":["api.example.com"],"protocol":"http"}`
)

// lead has the name lead to an address.
func (w *world) lead(address string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.leads["api.example.com"] = address
}

// reads makes rules of texts, which are not in force yet.
func reads(t *testing.T, proxy *policy.Proxy, texts ...string) Rules {
	t.Helper()
	raw := make([]json.RawMessage, len(texts))
	for i, text := range texts {
		raw[i] = json.RawMessage(text)
	}
	rules, err := policy.ParseRules(raw)
	if err != nil {
		t.Fatal(err)
	}
	made := Rules{Version: 7, Bounds: &policy.Bounds{Own: policy.NewGatekeeper(policy.Terms{Rules: rules, Proxy: proxy})}}
	if proxy != nil {
		made.Proxy = "proxy.example:3128"
	}
	return made
}

func TestTheEdgeIsConnectedToWhereTheNameLeadsNow(t *testing.T) {
	w := newWorld(t, both)
	w.connect(named)
	<-w.edge.taken
	connection := w.edge.last
	w.lead("203.0.113.2")
	for range 2 {
		made, err := w.DialInspected(t.Context(), connection.ID)
		if err != nil {
			t.Fatal(err)
		}
		exchange(t, made, w.accept())
		made.Close()
	}
	if !slices.Equal(w.dials, []string{"203.0.113.2", "203.0.113.2"}) || connection.Address != "203.0.113.1" {
		t.Errorf("it dialled %q for the connection to %s", w.dials, connection.Address)
	}
}

func TestTheEdgeIsNotConnectedToWhatTheRulesForbidNow(t *testing.T) {
	for _, c := range []struct {
		name, leads string
		rules       Rules
		want        string
	}{
		{"denied", "203.0.113.1", reads(t, nil, `{"action":"deny"}`), "rule 1 denies api.example.com"},
		{"a trap", "203.0.113.1", reads(t, nil, `{"action":"unplug"}`), "rule 1 unplugs at api.example.com"},
		{"private", "10.0.0.1", reads(t, nil, both), "api.example.com leads to an address that is private"},
		{
			"another rule", "203.0.113.2", reads(t, nil, atOne, atOther),
			"the name leads elsewhere now, where other rules decide",
		},
		{
			"a proxy", "203.0.113.1", reads(t, &policy.Proxy{}, both),
			"the policy has another proxy for it now",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t, atOne)
			w.connect(named)
			<-w.edge.taken
			w.lead(c.leads)
			w.Egress.Set(c.rules)
			made, err := w.DialInspected(t.Context(), w.edge.last.ID)
			var refused *RefusedError
			if made != nil || !errors.As(err, &refused) || refused.Reason != c.want {
				t.Errorf("it is refused as %v", err)
			}
			if len(w.dials) > 0 {
				t.Errorf("it dialled %q", w.dials)
			}
		})
	}
}

func TestTheEdgeIsConnectedForItsOpenConnectionsOnly(t *testing.T) {
	w := newWorld(t, both, `{"action":"allow","addresses":["203.0.113.7/32"]}`)
	w.open("203.0.113.7")
	w.Guest.mu.Lock()
	ids := []string{"none"}
	for connection := range w.connections {
		ids = append(ids, connection.ID)
	}
	w.Guest.mu.Unlock()
	for _, id := range ids {
		if _, err := w.DialInspected(t.Context(), id); !errors.Is(err, errEnded) {
			t.Errorf("%s, which the relay carries alone, is connected: %v", id, err)
		}
	}
	guest := w.connect(named)
	edge := <-w.edge.taken
	id := w.edge.last.ID
	w.ResetConnection(id)
	isReset(t, guest)
	io.Copy(io.Discard, edge)
	eventually(t, "it is forgotten", func() bool {
		_, err := w.DialInspected(t.Context(), id)
		return errors.Is(err, errEnded)
	})
}

func TestWhatFailsToConnectForTheEdgeIsNotARefusal(t *testing.T) {
	w := newWorld(t, both)
	w.connect(named)
	<-w.edge.taken
	w.mu.Lock()
	w.fails = errors.New("nothing answers there")
	w.mu.Unlock()
	if _, err := w.DialInspected(context.Background(), w.edge.last.ID); !errors.Is(err, w.fails) {
		t.Errorf("it failed with %v", err)
	}
}

// keeps tells whether a connection is to pass through the edge.
func (w *world) keeps() bool {
	w.Guest.mu.Lock()
	defer w.Guest.mu.Unlock()
	for connection := range w.connections {
		if connection.Kept() != nil {
			return true
		}
	}
	return false
}

func TestConnectionsThatWaitForAnEdgeOutliveTheLastOne(t *testing.T) {
	w := newWorld(t, both)
	w.edge.comes = make(chan struct{})
	guest := w.connect(named)
	eventually(t, "it waits for the edge", func() bool { return w.keeps() })
	w.ResetInspected()
	close(w.edge.comes)
	exchange(t, guest, <-w.edge.taken)
}

func TestRulesThatAreSetWhileAConnectionIsDecidedCount(t *testing.T) {
	for name, c := range map[string]struct {
		rules []string
		kept  []int // nil: it is refused
	}{
		"others": {[]string{`{"action":"deny","hosts":["other.example"]}`, both}, []int{1}},
		"none":   {[]string{`{"action":"deny"}`}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, both)
			next := reads(t, nil, c.rules...)
			w.while = func() { w.Egress.Set(next) }
			if c.kept == nil {
				w.isRefused(named)
				return
			}
			w.connect(named)
			<-w.edge.taken
			if kept := w.edge.judgesBy(); kept.Version != 7 || !slices.Equal(kept.Own, c.kept) {
				t.Errorf("it keeps %v", kept)
			}
		})
	}
}

func TestTheRulesOfAConnectionAreOfOneVersion(t *testing.T) {
	w := newWorld(t, both)
	w.Egress.Set(reads(t, nil, both))
	w.connect(named)
	<-w.edge.taken
	if kept := w.edge.judgesBy(); kept.Version != 7 || !slices.Equal(kept.Own, []int{0}) {
		t.Errorf("it keeps %v", kept)
	}
	next := reads(t, nil, `{"action":"deny","hosts":["other.example"]}`, both)
	next.Version = 8
	w.Egress.Set(next)
	w.JudgeAgain()
	if kept := w.edge.judgesBy(); kept.Version != 8 || !slices.Equal(kept.Own, []int{1}) {
		t.Errorf("it keeps %v", kept)
	}
}
