package control

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"atoll/edge/change"
	"atoll/edge/models"
)

// Models is the content of a message about providers, aliases and prices. It replaces the one before.
type Models struct {
	Providers Providers                          `json:"providers"`
	Aliases   map[string][]models.Entry          `json:"aliases"`
	Prices    map[string]map[string]models.Price `json:"prices"`
}

// Providers are those of models, by name, in the order in which they were written.
type Providers []Provider

// Provider is one of them.
type Provider struct {
	Name string              `json:"-"`
	Kind models.Dialect      `json:"kind"`
	URL  string              `json:"url"`
	Keys []change.SecretText `json:"keys"` // in order of preference
}

// UnmarshalJSON keeps the order of the names.
func (p *Providers) UnmarshalJSON(text []byte) error {
	var made Providers
	decoder := json.NewDecoder(bytes.NewReader(text))
	if open, err := decoder.Token(); err != nil || open != json.Delim('{') {
		return fmt.Errorf("the providers are no object")
	}
	for decoder.More() {
		name, err := decoder.Token()
		if err != nil {
			return err
		}
		var each Provider
		if err := decoder.Decode(&each); err != nil {
			return err
		}
		each.Name = name.(string)
		made = append(made, each)
	}
	*p = made
	return nil
}

// Catalogue is the content without the keys, which are given by the names of their providers.
func (m *Models) Catalogue() (*models.Catalogue, map[string][]change.SecretText, error) {
	made := &models.Catalogue{Providers: map[string]*models.Provider{}, Aliases: m.Aliases, Prices: m.Prices}
	keys := map[string][]change.SecretText{}
	for _, each := range m.Providers {
		provider, err := models.NewProvider(each.Name, each.Kind, each.URL, len(each.Keys))
		if err != nil {
			return nil, nil, err
		}
		made.Providers[each.Name], keys[each.Name] = provider, each.Keys
		made.Order = append(made.Order, each.Name)
	}
	return made, keys, nil
}

// Allotment is what a message allots.
func (m *Message) Allotment() models.Allotment {
	made := models.Allotment{
		Need: m.ID, Budget: m.Budget, Amount: models.Amount{Tokens: m.Tokens, Nanos: m.Nanos}, Over: m.Over,
		Left:   models.Amount{Tokens: m.LeftTokens, Nanos: m.LeftNanos},
		Limits: models.Limits{Tokens: slices.Contains(m.Limits, "tokens"), Money: slices.Contains(m.Limits, "usd")},
	}
	if m.Until > 0 {
		made.Until = time.Unix(m.Until, 0)
	}
	return made
}

// Need asks to allot more of a budget.
type Need struct {
	Op string `json:"op"`
	models.Need
}

// Billed tells what a request to a model has cost.
type Billed struct {
	Op string `json:"op"`
	models.Bill
}

// Returned gives back what was allotted and is not used.
type Returned struct {
	Op string `json:"op"`
	models.Return
}

// Holds tells a new owner what may still be spent of each budget, before Welcome.
type Holds struct {
	Op      string                   `json:"op"`
	Edge    string                   `json:"edge"` // which process says so
	Budgets map[string]models.Amount `json:"budgets"`
	More    bool                     `json:"more,omitempty"` // another message has further ones
}
