package control

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"atoll/policy"
	"atoll/relay/guest"
	"atoll/relay/resolve"
	"atoll/relay/upstream"
)

// Settings are the content of a message of that name. They replace the earlier settings of all links.
type Settings struct {
	Nameservers Nameservers    `json:"nameservers"`
	PatienceMS  int64          `json:"proxy_patience_ms"` // how long an upstream proxy may take; 0: as long as usual
	Foreign     []netip.Prefix `json:"foreign"`           // never taken for this host's own, for tests
}

const patienceMost = 10 * time.Minute

// Patience is how long an upstream proxy may take; 0: as long as usual.
func (s *Settings) Patience() (time.Duration, error) {
	if s.PatienceMS < 0 || s.PatienceMS > patienceMost.Milliseconds() {
		return 0, fmt.Errorf("a proxy's patience of %d ms is none", s.PatienceMS)
	}
	return time.Duration(s.PatienceMS) * time.Millisecond, nil
}

// Nameservers are those of the host: the text of a resolv.conf, or a list of addresses, each with a port if it is not 53.
type Nameservers []netip.AddrPort

const dnsPort = 53

// UnmarshalJSON reads both forms.
func (n *Nameservers) UnmarshalJSON(text []byte) error {
	var file string
	if json.Unmarshal(text, &file) == nil {
		*n = resolve.ParseNameservers([]byte(file))
		return nil
	}
	var list []string
	if err := json.Unmarshal(text, &list); err != nil {
		return errors.New("the nameservers are neither a text nor a list")
	}
	made := make(Nameservers, 0, len(list))
	for _, each := range list {
		at, err := netip.ParseAddrPort(each)
		if address, other := netip.ParseAddr(each); other == nil {
			at, err = netip.AddrPortFrom(address, dnsPort), nil
		}
		if err != nil {
			return fmt.Errorf("%.80q is no nameserver", each)
		}
		made = append(made, at)
	}
	*n = made
	return nil
}

// Rules are the content of a message of that name: everything that decides about the connections of one sandbox.
type Rules struct {
	Own      *Document       `json:"own"`     // nil: everything public
	Ceiling  *Document       `json:"ceiling"` // nil: the sandbox's team has none
	Proxy    *upstream.Proxy `json:"proxy"`   // where that of the sandbox's own policy is
	Canaries []string        `json:"canaries"`
	Models   []Model         `json:"models"` // providers of models that the sandbox may use; none: it has no models
}

// Model says where a provider of models is.
type Model struct {
	Provider string `json:"provider"`
	Host     string `json:"host"`
	Port     int    `json:"port"`
}

// Providers are those of models.
func (r *Rules) Providers() (guest.Providers, error) {
	made := guest.Providers{}
	for _, each := range r.Models {
		if each.Provider == "" || each.Host == "" || each.Port < 1 || each.Port > 65535 {
			return nil, fmt.Errorf("a provider of models is nowhere: %.80q at %.80q:%d", each.Provider, each.Host, each.Port)
		}
		made[each.Provider] = guest.Provider{Host: each.Host, Port: each.Port}
	}
	return made, nil
}

// Document is the part of a policy about connections.
type Document struct {
	Rules       []json.RawMessage `json:"rules"`
	Observe     bool              `json:"observe"`
	Passthrough []string          `json:"passthrough"`
	Proxy       *policy.Proxy     `json:"proxy"`
}

// everything is every public address, as rules, for a ceiling to bound.
var everything = &Document{Rules: []json.RawMessage{json.RawMessage(`{"action":"allow","name":"internet"}`)}}

// Bounds makes the policy and its ceiling ready to judge by.
func (r *Rules) Bounds() (*policy.Bounds, error) {
	own := r.Own
	if own == nil && r.Ceiling != nil {
		own = everything
	}
	if (r.Own != nil && r.Own.Proxy != nil) != (r.Proxy != nil) {
		return nil, errors.New("the policy and the place of its proxy do not go together")
	}
	if r.Ceiling != nil && (r.Ceiling.Observe || r.Ceiling.Proxy != nil) {
		return nil, errors.New("the ceiling only observes, or has a proxy")
	}
	made := &policy.Bounds{}
	var err error
	if made.Own, err = own.gatekeeper(); err != nil {
		return nil, err
	}
	if made.Ceiling, err = r.Ceiling.gatekeeper(); err != nil {
		return nil, fmt.Errorf("the ceiling: %w", err)
	}
	if made.Ceiling.Asks() {
		return nil, errors.New("the ceiling: a rule asks, and a ceiling only decides")
	}
	return made, nil
}

// gatekeeper is nil for a policy that is not there.
func (d *Document) gatekeeper() (*policy.Gatekeeper, error) {
	if d == nil {
		return nil, nil
	}
	rules, err := policy.ParseRules(d.Rules)
	if err != nil {
		return nil, err
	}
	return policy.NewGatekeeper(policy.Terms{
		Rules: rules, Observe: d.Observe, Passthrough: d.Passthrough, Proxy: d.Proxy,
	}), nil
}
