// Package gateway leads the requests of sandboxes to models: it chooses the model, puts the key in, and has budgets pay.
package gateway

import (
	"context"
	"net/http"
	"strconv"
	"sync/atomic"
	"time"

	"atoll/edge/change"
	"atoll/edge/control"
	"atoll/edge/models"
	"atoll/edge/traces"
)

// Gateway is that of all sandboxes.
type Gateway struct {
	Ledger  *models.Ledger
	offered atomic.Pointer[offer]
}

// offer is what the owner of the home offers.
type offer struct {
	*models.Catalogue
	keys      *change.Secrets
	scrubbers map[string]*change.Scrubber // of the keys of a provider
}

// New offers nothing yet.
func New() *Gateway { return &Gateway{Ledger: models.NewLedger(time.Now)} }

// Offer has requests go to these providers from now on. The earlier keys are erased.
func (g *Gateway) Offer(content *control.Models) error {
	catalogue, keys, err := content.Catalogue()
	if err != nil {
		return err
	}
	next := &offer{Catalogue: catalogue, scrubbers: map[string]*change.Scrubber{}}
	values := map[string]change.SecretText{}
	for provider, texts := range keys {
		var echoes []change.Echo
		for i, text := range texts {
			values[keyName(provider, i)] = text
			echoes = append(echoes, change.Echo{Name: "of " + provider, Text: text})
		}
		next.scrubbers[provider] = change.NewScrubber(echoes)
	}
	next.keys = change.NewSecrets(values, nil)
	if before := g.offered.Swap(next); before != nil {
		before.keys.Wipe()
	}
	return nil
}

func keyName(provider string, index int) string { return provider + " " + strconv.Itoa(index) }

// Caller is the sandbox from which a request comes.
type Caller interface {
	// Sandbox is its id.
	Sandbox() string
	// Access says which models it may use. An error: the request must not go on.
	Access(ctx context.Context) (*models.Access, error)
	// Reach gives the way to a provider. Done is called when the request has ended.
	Reach(provider *models.Provider) (way http.RoundTripper, done func())
	// Read reads a body of at most so many bytes. Done is called when it is used no more.
	Read(ctx context.Context, most int64) (body []byte, done func(), err error)
	// Span gets what the owner's trace says of the request; nil: it belongs to none.
	Span() *traces.Span
	// Note tells what became of a request.
	Note(action, method, path, reason string)
}
