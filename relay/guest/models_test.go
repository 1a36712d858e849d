package guest

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"testing"

	"atoll/policy"
)

var atModels = netip.MustParseAddrPort("198.18.0.9:80")

// withModels are rules of a guest with one provider.
func withModels(t *testing.T, at net.Addr) Rules {
	rules := reads(t, nil)
	port := at.(*net.TCPAddr).Port
	rules.Models = Providers{"openai": {"127.0.0.1", port}, "named": {"localhost", port}}
	return rules
}

func TestModelsAreReachedThroughTheEdgeWhateverTheRulesAllow(t *testing.T) {
	server, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	w := newWorld(t)
	w.mu.Lock()
	w.names[atModels.Addr()] = policy.ModelsName
	w.mu.Unlock()
	w.Egress.Set(withModels(t, server.Addr()))
	visitor := w.connectTo(atModels)
	exchange(t, visitor, <-w.edge.taken)
	id := w.edge.last.ID
	if kept := w.edge.last.Kept(); kept.Version != 7 || len(kept.Own) != 0 {
		t.Errorf("it keeps the rules %+v", kept)
	}
	for _, provider := range []string{"openai", "named"} {
		made, err := w.DialProvider(t.Context(), id, provider)
		if err != nil {
			t.Fatal(err)
		}
		made.Close()
	}
	var refused *RefusedError
	if _, err := w.DialProvider(t.Context(), id, "other"); !errors.As(err, &refused) {
		t.Errorf("another provider: %v", err)
	}
	if _, err := w.DialInspected(t.Context(), id); !errors.As(err, &refused) {
		t.Error("the gateway is dialled as a server")
	}
	w.Egress.Cut(true)
	if _, err := w.DialProvider(t.Context(), id, "openai"); !errors.As(err, &refused) {
		t.Errorf("for a guest that is cut off: %v", err)
	}
	w.Egress.Cut(false)
	w.JudgeAgain() // nothing has changed
	judged, err := w.DialProvider(t.Context(), id, "openai")
	if err != nil {
		t.Fatal(err)
	}
	judged.Close()
	without := reads(t, nil)
	w.Egress.Set(without)
	w.JudgeAgain()
	isReset(t, visitor)
	if _, err := w.DialProvider(t.Context(), id, "openai"); err == nil {
		t.Error("a guest without models reaches a provider")
	}
}

func TestNobodyElseGetsToModels(t *testing.T) {
	everything := `{"action":"allow","hosts":["*","models.atoll.internal"],"addresses":["0.0.0.0/0","127.0.0.0/8"],"ports":["1-65535"]}`
	for name, rules := range map[string]Rules{"rules": reads(t, nil, everything), "no rules": {Bounds: &policy.Bounds{}}} {
		w := newWorld(t)
		w.Egress.Set(rules)
		to := Destination{Name: policy.ModelsName, Address: atModels.Addr(), Port: 80}
		if way := w.Egress.decide(context.Background(), to); way.Action != policy.Deny {
			t.Errorf("%s: %+v", name, way)
		}
		rules.Models = Providers{"openai": {"127.0.0.1", 1}}
		w.Egress.Set(rules)
		to.Port = 443
		if way := w.Egress.decide(context.Background(), to); way.Action != policy.Deny {
			t.Errorf("%s at another port: %+v", name, way)
		}
		if w.Egress.HasModels(); rules.Bounds.Name(policy.ModelsName).Action != policy.Deny {
			t.Errorf("%s know the name", name)
		}
	}
}
