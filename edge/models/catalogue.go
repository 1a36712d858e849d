package models

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// Provider is one whose models may be used.
type Provider struct {
	Name string
	Kind Dialect
	Keys int // how many there are, in order of preference
	// Where it is. The path is that before the guest's.
	Secure bool
	Host   string
	Port   int
	Path   string
}

// Entry is a model of a provider.
type Entry struct {
	Provider string `json:"provider"`
	Model    string `json:"model"`
}

// Catalogue is everything that the owner of the home says about models, without the keys.
type Catalogue struct {
	Providers map[string]*Provider
	Order     []string // of the providers
	Aliases   map[string][]Entry
	Prices    map[string]map[string]Price
}

// NewProvider reads the URL of a provider.
func NewProvider(name string, kind Dialect, where string, keys int) (*Provider, error) {
	at, err := url.Parse(where)
	if err != nil {
		return nil, fmt.Errorf("provider %s: its url cannot be read", name)
	}
	made := &Provider{
		Name: name, Kind: kind, Keys: keys, Secure: at.Scheme == "https", Host: at.Hostname(), Port: 80,
		Path: strings.TrimSuffix(at.EscapedPath(), "/"),
	}
	if made.Secure {
		made.Port = 443
	}
	if text := at.Port(); text != "" {
		if made.Port, err = strconv.Atoi(text); err != nil || made.Port < 1 || made.Port > 65535 {
			return nil, fmt.Errorf("provider %s: its url has no port to connect to", name)
		}
	}
	switch {
	case !made.Secure && at.Scheme != "http", made.Host == "", at.RawQuery != "", at.User != nil:
		return nil, fmt.Errorf("provider %s: its url is not http or https with a host and a path alone", name)
	case !isDialect(string(kind)):
		return nil, fmt.Errorf("provider %s: there is no kind %q", name, kind)
	}
	return made, nil
}

// Scheme is that of its URL.
func (p *Provider) Scheme() string {
	if p.Secure {
		return "https"
	}
	return "http"
}

// Authority is its host and port.
func (p *Provider) Authority() string { return net.JoinHostPort(p.Host, strconv.Itoa(p.Port)) }

// Access says which models a sandbox may use, and whose budgets pay.
type Access struct {
	Allow   []string `json:"allow"`
	Budgets []string `json:"budgets"`
}

// allows tells whether one of the patterns has a name: an alias's, or that of a model behind its provider's.
func (a *Access) allows(name string) bool {
	return slices.ContainsFunc(a.Allow, func(pattern string) bool { return matches(pattern, name) })
}

// matches compares with a pattern in which * stands for any text.
func matches(pattern, name string) bool {
	parts := strings.Split(pattern, "*")
	rest, isBegun := strings.CutPrefix(name, parts[0])
	if !isBegun {
		return false
	}
	if len(parts) == 1 {
		return rest == ""
	}
	for _, part := range parts[1 : len(parts)-1] {
		at := strings.Index(rest, part)
		if at < 0 {
			return false
		}
		rest = rest[at+len(part):]
	}
	return strings.HasSuffix(rest, parts[len(parts)-1])
}

// Candidate is a model that may serve a request.
type Candidate struct {
	Provider *Provider
	Model    string
	Price    *Price // nil: it is not known
}

// Worst is what a request costs at most.
func (c *Candidate) Worst(input, output int64) Amount { return c.priceOrNone().Worst(input, output) }

// Cost is what a request has cost.
func (c *Candidate) Cost(used Usage) Amount { return Amount{used.Tokens(), c.priceOrNone().Of(used)} }

// Affords is how many tokens of output an amount pays for, behind that much input.
func (c *Candidate) Affords(left Amount, limits Limits, input int64) int64 {
	return c.priceOrNone().Affords(left, limits, input)
}

func (c *Candidate) priceOrNone() Price {
	if c.Price == nil {
		return Price{}
	}
	return *c.Price
}

// Errors of choosing. The texts are for the guest.
var (
	ErrNoProvider = errors.New("no provider of that name speaks this API here")
	ErrNotAllowed = errors.New("this sandbox may not use that model")
)

// Target is where requests of a dialect go.
type Target struct {
	Dialect Dialect
	Default *Provider // of models that name no other one
}

// Target finds what a path's first part names.
func (c *Catalogue) Target(first string) (Target, error) {
	for _, name := range c.Order {
		if each := c.Providers[name]; each != nil && string(each.Kind) == first {
			return Target{each.Kind, each}, nil
		}
	}
	return Target{}, ErrNoProvider
}

// Choose gives the models that may serve a request for a name, in order of preference.
func (c *Catalogue) Choose(access *Access, target Target, asked string) ([]Candidate, error) {
	if entries, ok := c.Aliases[asked]; ok {
		if !access.allows(asked) {
			return nil, ErrNotAllowed
		}
		var found []Candidate
		for _, each := range entries {
			if provider := c.Providers[each.Provider]; provider != nil && provider.Kind == target.Dialect {
				found = append(found, c.candidate(provider, each.Model))
			}
		}
		if len(found) == 0 {
			return nil, ErrNoProvider
		}
		return found, nil
	}
	provider, model := target.Default, asked
	if first, rest, isNamed := strings.Cut(asked, "/"); isNamed && c.Providers[first] != nil {
		provider, model = c.Providers[first], rest
	}
	switch {
	case provider.Kind != target.Dialect:
		return nil, ErrNoProvider
	case !access.allows(provider.Name + "/" + model):
		return nil, ErrNotAllowed
	}
	return []Candidate{c.candidate(provider, model)}, nil
}

// AllowsAll tells whether all models of a provider may be used, whatever they are called.
func (a *Access) AllowsAll(provider *Provider) bool {
	return slices.ContainsFunc(a.Allow, func(pattern string) bool {
		return strings.Trim(pattern, "*") == "" && pattern != "" || pattern == provider.Name+"/*"
	})
}

// Names are the models that may be used, of those that are known by name.
func (c *Catalogue) Names(access *Access, target Target) []Entry {
	var found []Entry
	for _, alias := range sorted(c.Aliases) {
		if _, err := c.Choose(access, target, alias); err == nil {
			found = append(found, Entry{"atoll", alias})
		}
	}
	for _, name := range sorted(c.Prices) {
		provider := c.Providers[name]
		if provider == nil || provider.Kind != target.Dialect {
			continue
		}
		for _, model := range sorted(c.Prices[name]) {
			full := name + "/" + model
			if !access.allows(full) {
				continue
			}
			if provider == target.Default {
				full = model
			}
			found = append(found, Entry{name, full})
		}
	}
	return found
}

func (c *Catalogue) candidate(provider *Provider, model string) Candidate {
	return Candidate{provider, model, c.price(provider.Name, model)}
}

// dated is the end of the name of a version of a model.
var dated = regexp.MustCompile(`-(\d{8}|\d{4}-\d{2}-\d{2})$`)

// price is that of a model, or of the model of which it is a version.
func (c *Catalogue) price(provider, model string) *Price {
	for _, name := range []string{model, dated.ReplaceAllString(model, "")} {
		if found, ok := c.Prices[provider][name]; ok {
			return &found
		}
	}
	return nil
}

func sorted[V any](of map[string]V) []string {
	names := make([]string, 0, len(of))
	for name := range of {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}
