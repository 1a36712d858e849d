package neighbour

import (
	"fmt"
	"io"
	"net/http"
	"testing"

	"atoll/edge/control"
	"atoll/edge/models"
	"atoll/policy"
	"atoll/relay/guest"
)

func TestARequestToAModelPassesRelayAndEdge(t *testing.T) {
	w := newWorldTo(t, policy.ModelsName, func(writer http.ResponseWriter, request *http.Request) {
		if request.URL.Path != "/v1/responses" || request.Header.Get("Authorization") != "Bearer sk-of-the-owner" {
			t.Errorf("it gets %s with %v", request.URL, request.Header)
		}
		io.WriteString(writer, `{"text":"`+request.Header.Get("Authorization")+`","usage":{"input_tokens":7,"output_tokens":3}}`)
	})
	w.edge.send(control.Message{Op: "models"}, memfd(t, map[string]any{
		"providers": map[string]any{"local": map[string]any{
			"kind": "openai", "url": "http://provider.example:8000/v1", "keys": []string{"sk-of-the-owner"},
		}},
	}))
	allowed := map[string]any{"allow": []string{"local/*"}, "budgets": []string{"sandbox:s", "home"}}
	w.edge.send(control.Message{Op: "policy", Sandbox: "s", Version: 1}, memfd(t, map[string]any{"models": allowed}))
	nothing := &policy.Bounds{Own: policy.NewGatekeeper(policy.Terms{})}
	rules := guest.Rules{Version: 1, Bounds: nothing, Models: guest.Providers{
		"local": {Host: w.server.Addr().String(), Port: int(w.server.Port())},
	}}
	w.Egress.Set(rules)

	c := w.connect()
	const body = `{"model":"m","max_output_tokens":50}`
	ask := func() {
		t.Helper()
		_, err := fmt.Fprintf(c.socket, "POST /openai/v1/responses HTTP/1.1\r\nHost: %s\r\nContent-Length: %d\r\n\r\n%s",
			policy.ModelsName, len(body), body)
		must(t, err)
	}
	for range 2 {
		ask()
		c.hears(200, `"Bearer [secret of local]"`)
		bill := <-w.edge.bills
		if bill.Usage != (models.Usage{Input: 7, Output: 3}) || bill.Model != "m" || len(bill.Budgets) != 2 {
			t.Errorf("it costs %+v", bill)
		}
	}
	rules.Version, rules.Models = 2, nil
	w.Egress.Set(rules)
	w.JudgeAgain()
	c.isReset()
}
