package serve

import (
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"atoll/edge/control"
	"atoll/edge/models"
)

// purse is the supervisor's side of budgets.
type purse struct {
	mu       sync.Mutex
	limits   map[string]models.Amount // of budgets; below zero: no limit of that kind
	spent    map[string]models.Amount
	allotted map[string]models.Amount
	bills    []models.Bill
	isAway   bool
	away     []any
}

func (p *purse) hear(edge *Edge, message any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.isAway {
		p.away = append(p.away, message)
		return
	}
	switch said := message.(type) {
	case control.Need:
		p.allot(edge, said.Need)
	case control.Billed:
		p.bills = append(p.bills, said.Bill)
		for _, name := range said.Budgets {
			p.move(p.spent, name, said.Usage.Tokens(), said.Nanos)
			p.move(p.allotted, name, -said.Usage.Tokens(), -said.Nanos)
		}
		edge.Handle(&control.Message{Op: "settled", ID: said.ID}, nil)
	case control.Returned:
		p.move(p.allotted, said.Budget, -said.Tokens, -said.Nanos)
		edge.Handle(&control.Message{Op: "settled", ID: said.ID}, nil)
	}
}

func (p *purse) move(of map[string]models.Amount, name string, tokens, nanos int64) {
	of[name] = models.Amount{Tokens: max(of[name].Tokens+tokens, 0), Nanos: max(of[name].Nanos+nanos, 0)}
}

func (p *purse) allot(edge *Edge, need models.Need) {
	limit := p.limits[need.Budget]
	answer := control.Message{Op: "allot", ID: need.ID, Budget: need.Budget}
	part := func(limit, used, needed int64, kind string) (given, left int64) {
		if limit < 0 {
			return -1, -1
		}
		answer.Limits = append(answer.Limits, kind)
		left = max(limit-used, 0)
		given = min(left, needed)
		answer.Over = answer.Over || given < needed
		return given, left - given
	}
	spent, allotted := p.spent[need.Budget], p.allotted[need.Budget]
	answer.Tokens, answer.LeftTokens = part(limit.Tokens, spent.Tokens+allotted.Tokens, need.Tokens, "tokens")
	answer.Nanos, answer.LeftNanos = part(limit.Nanos, spent.Nanos+allotted.Nanos, need.Nanos, "usd")
	p.move(p.allotted, need.Budget, max(answer.Tokens, 0), max(answer.Nanos, 0))
	edge.Handle(&answer, nil)
}

func (p *purse) billed() []models.Bill {
	p.mu.Lock()
	defer p.mu.Unlock()
	return append([]models.Bill(nil), p.bills...)
}

// usd is a budget of money alone, in dollars.
func usd(dollars float64) models.Amount {
	return models.Amount{Tokens: -1, Nanos: int64(dollars * 1e9)}
}

var endless = models.Amount{Tokens: -1, Nanos: -1}

// newModels is a world with providers, whose sandbox has models under one budget.
func newModels(t testing.TB, budget models.Amount, allow ...string) *world {
	t.Helper()
	w := newWorld(t)
	w.purse = purse{
		limits: map[string]models.Amount{"sandbox:s": budget}, spent: map[string]models.Amount{}, allotted: map[string]models.Amount{},
	}
	price := dict{"input": 1000, "cache_read": 100, "cache_write": 1250, "output": 5000}
	content := dict{
		"providers": dict{
			"openai":    dict{"kind": "openai", "url": "https://openai.example/v1", "keys": []string{"sk-first-key", "sk-second-key"}},
			"anthropic": dict{"kind": "anthropic", "url": "https://anthropic.example/v1", "keys": []string{"sk-ant-key"}},
			"spare":     dict{"kind": "openai", "url": "http://spare.example:8080/api/v1/", "keys": []string{"sk-spare-key"}},
		},
		"aliases": dict{"cheap": []dict{{"provider": "openai", "model": "small"}, {"provider": "spare", "model": "little"}}},
		"prices":  dict{"openai": dict{"small": price, "big": price}, "spare": dict{"little": price}, "anthropic": dict{"claude": price}},
	}
	must(t, w.edge.Handle(&control.Message{Op: "models"}, memfd(t, content)))
	if allow == nil {
		allow = []string{"*"}
	}
	w.policyWith(dict{"models": dict{"allow": allow, "budgets": []string{"sandbox:s"}}})
	return w
}

// provider answers for one of the providers. Without TLS it is the spare one.
func (w *world) provider(name string, handler http.HandlerFunc) {
	server := httptest.NewUnstartedServer(handler)
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	if name == "spare" {
		server.Start()
	} else {
		certificate, err := w.upstream.For(name+".example", true, time.Now())
		must(w.t, err)
		server.EnableHTTP2 = true
		server.TLS = &tls.Config{Certificates: []tls.Certificate{*certificate}}
		server.StartTLS()
	}
	w.t.Cleanup(server.Close)
	w.named("provider "+name, server.Listener.Addr().String())
}

// bill waits for the bill with this number, counted from 1.
func (w *world) bill(number int) models.Bill {
	w.t.Helper()
	eventually(w.t, fmt.Sprint("bill ", number), func() bool { return len(w.purse.billed()) >= number })
	return w.purse.billed()[number-1]
}

// isFree waits until nothing is reserved any more, and tells what is wrong with what was spent.
func (w *world) isFree() {
	w.t.Helper()
	eventually(w.t, "that nothing is reserved", func() bool {
		holds := w.edge.models.Ledger.Greet()
		w.purse.mu.Lock()
		defer w.purse.mu.Unlock()
		for name, held := range holds {
			if limit := w.purse.limits[name]; limit.Nanos >= 0 && held.Nanos > w.purse.allotted[name].Nanos {
				return false
			}
		}
		return true
	})
}

const modelsURL = "http://models.atoll.internal"

// said is the body of a request as a provider gets it.
func said(request *http.Request) map[string]any {
	var body map[string]any
	_ = json.NewDecoder(request.Body).Decode(&body)
	return body
}

const chatAnswer = `{"id":"x","choices":[{"message":{"content":"Hi"}}],"usage":{"prompt_tokens":100,"completion_tokens":20,"prompt_tokens_details":{"cached_tokens":40}}}`

func answerChat(writer http.ResponseWriter) {
	writer.Header().Set("Content-Type", "application/json")
	io.WriteString(writer, chatAnswer)
}

// setRulesOfAll has the carrier give every connection no rules of the newest policy.
func (w *world) setRulesOfAll() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	var err error
	for id := range w.links {
		message := control.Message{Op: "rules", Sandbox: w.sandbox, Version: w.versions[w.sandbox], Connection: id}
		err = errors.Join(err, w.edge.Carry(w, &message, nil))
	}
	return err
}
