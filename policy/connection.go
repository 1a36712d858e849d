package policy

import (
	"fmt"
	"net/netip"
	"strconv"
)

// Inspect is the action for a connection whose requests have to be judged one by one.
const Inspect = "inspect"

// Admission is the verdict on a connection.
type Admission struct {
	Action string // Allow, Deny, Unplug or Inspect
	Rule   *Rule  // that decides; nil: none does
	Reason string // why it is denied, for people; empty if it is not
	// The rules that the destination matches, in order, where requests decide.
	Kept []*Rule
	// The policy only observes: it would have been denied.
	Observed bool
	// The ceiling of the sandbox's team decided, and the rule is one of it.
	Ceiling bool
	// The ceiling's rules that the destination matches, in order.
	Above []*Rule
}

// Deciding are the rules by which a connection with this verdict is judged.
func (a *Admission) Deciding() []*Rule {
	if len(a.Kept) == 0 && a.Rule != nil {
		return []*Rule{a.Rule}
	}
	return a.Kept
}

func (a *Admission) refuses() bool { return a.Action == Deny || a.Action == Unplug }

func denied(reason string) Admission { return Admission{Action: Deny, Reason: reason} }

// Terms are a policy as far as it is about connections.
type Terms struct {
	Rules       []*Rule
	Observe     bool
	Passthrough []string // names whose TLS is never opened
	Proxy       *Proxy   // nil: the host connects itself
}

// Proxy is between the host and the outside. Where it is, need not be known here.
type Proxy struct {
	Hosts []string `json:"hosts"` // that are reached through it; none: all of them, and addresses
}

// Gatekeeper judges connections by a policy: by name, address and port, before anything is sent.
type Gatekeeper struct {
	rules       []*Rule
	observe     bool
	names       *patterns
	passed      *patterns
	hasProxy    bool
	proxiesAll  bool
	proxiedOnly *patterns
}

// NewGatekeeper makes a policy ready to judge by.
func NewGatekeeper(terms Terms) *Gatekeeper {
	made := &Gatekeeper{
		rules: terms.Rules, observe: terms.Observe, names: patternsOf(terms.Rules), passed: allOf(terms.Passthrough),
	}
	if terms.Proxy != nil {
		made.hasProxy, made.proxiesAll = true, len(terms.Proxy.Hosts) == 0
		made.proxiedOnly = allOf(terms.Proxy.Hosts)
	}
	return made
}

// Asks tells whether one of the rules asks.
func (g *Gatekeeper) Asks() bool { return g != nil && AnyAsks(g.rules) }

// Name judges a name before it is resolved: it is allowed if some port of it may be reached. Otherwise nothing may be asked
// about it outside, because a name carries data. For the same reason a rule that has only ranges of addresses does not make
// every name known.
func (g *Gatekeeper) Name(text string) Admission {
	name := PlainHost(text)
	if name == "" {
		return denied(quoted(text) + " is no host name")
	}
	ways, why := g.named(name), ""
	if IsInternal(name) {
		why = "no rule exposes a port of " + name
		switch name {
		case hostName:
			why = "no rule exposes a port of this host"
		case ModelsName:
			why = "this sandbox has no models"
		}
	}
	if g.Proxied(name) {
		ways, why = g.unresolved(name)
	}
	onlyRanges := false
	for i, rule := range g.rules {
		switch {
		case ways[i] == 0:
		case rule.mayAllow() && ways[i]&barring == 0:
			if len(rule.Hosts) > 0 || len(rule.Addresses) == 0 || g.observe {
				return Admission{Action: Allow}
			}
			onlyRanges = true
		case rule.shuts() && len(rule.Addresses) == 0:
			if onlyRanges {
				return denied("no rule allows " + name)
			}
			return g.decide([]*Rule{rule}, nil, name, why)
		}
	}
	if onlyRanges {
		return denied("no rule allows " + name)
	}
	return g.decide(nil, nil, name, why)
}

// KnowsAddress tells whether any port may be reached at an address under a name, or going there unplugs.
func (g *Gatekeeper) KnowsAddress(text, address string) bool {
	name := PlainHost(text)
	to, ok := PlainAddress(address)
	if name == "" || !ok {
		return false
	}
	isClosed := WhyClosed(to) != ""
	if g.observe && !isClosed {
		return true
	}
	ways := g.named(name)
	for i, rule := range g.rules {
		if ways[i] == 0 || !rule.isAt(to, isClosed) || rule.isBarred(ways[i], rule.opens(to, isClosed)) {
			continue
		}
		if rule.Action != Deny {
			return true
		}
		if rule.shuts() {
			return false
		}
	}
	return false
}

// LooksInto tells whether a connection to a plain name must show that it asks for that name, and no other one.
func (g *Gatekeeper) LooksInto(name string) bool {
	return !g.observe && !IsInternal(name) && !g.passed.have(name)
}

// Proxied tells whether a proxy connects to a plain name; an empty one is an address for which there is no name.
func (g *Gatekeeper) Proxied(name string) bool {
	return g.hasProxy && !IsInternal(name) && (g.proxiesAll || name != "" && g.proxiedOnly.have(name))
}

// Connection judges a connection to an address: what a name was resolved to, or what the guest gave, without a name then.
func (g *Gatekeeper) Connection(text, address string, port int) Admission {
	name, fault := destination(text, port)
	if fault != "" {
		return denied(fault)
	}
	to, ok := PlainAddress(address)
	if !ok {
		return denied(quoted(address) + " is no address to connect to")
	}
	if IsInternal(name) && !to.IsLoopback() {
		return denied(address + " is no address of " + name)
	}
	why := WhyClosed(to)
	isClosed := why != "" && !IsInternal(name)
	if why != "" {
		why = place(name, address) + " is " + why
	}
	kept, barred := g.leading(g.named(name), name, port, func(rule *Rule) (bool, bool) {
		return rule.isAt(to, isClosed), rule.opens(to, isClosed)
	})
	if name == "" {
		name = address
	}
	return g.decide(kept, barred, name+":"+strconv.Itoa(port), why)
}

// Unresolved judges a connection to a name that a proxy resolves.
func (g *Gatekeeper) Unresolved(text string, port int) Admission {
	name, fault := destination(text, port)
	if fault != "" {
		return denied(fault)
	}
	if isLoopbackName(name) {
		return denied(name + " is the proxy's own computer")
	}
	ways, why := g.unresolved(name)
	kept, barred := g.leading(ways, name, port, func(*Rule) (bool, bool) { return true, true })
	return g.decide(kept, barred, name+":"+strconv.Itoa(port), why)
}

func destination(text string, port int) (name, fault string) {
	if port < 1 || port > portLast {
		return "", strconv.Itoa(port) + " is not a port"
	}
	if name = PlainHost(text); name == "" && text != "" {
		return "", quoted(text) + " is no host name"
	}
	return name, ""
}

// place is the name for an address in a refusal. It hides the address from a guest that asked by name: the names of the
// host's network would tell its layout.
func place(name, address string) string {
	if name == "" {
		return address
	}
	return name + " leads to an address that"
}

// named tells of each rule how it has a name. A wider pattern never opens ports of the host or of a sandbox, but it may well
// shut them.
func (g *Gatekeeper) named(name string) []how {
	ways := g.names.of(name)
	switch {
	case name == ModelsName:
		g.strike(ways, never)
	case IsInternal(name):
		g.strike(ways, exposing)
	}
	return ways
}

// unresolved tells the same of a name whose address is not known, and why only a rule that names it may allow it. The address
// may lie in a range that a rule refuses, and no rule that opens a range opens it.
func (g *Gatekeeper) unresolved(name string) (ways []how, why string) {
	ways = g.named(name)
	if why = whyLocal(name); why != "" {
		why = name + " is " + why
		g.strike(ways, specifically)
	}
	for i, rule := range g.rules {
		if len(rule.Addresses) > 0 {
			rule.strike(&ways[i])
		}
	}
	return ways, why
}

// strike drops the rules that allow a name and do not have it in a way.
func (g *Gatekeeper) strike(ways []how, needed how) {
	for i, rule := range g.rules {
		if ways[i]&needed == 0 {
			rule.strike(&ways[i])
		}
	}
}

// strike has the rule not allow what it has. One that asks still bars it from later rules.
func (r *Rule) strike(way *how) {
	switch {
	case r.Action == Allow:
		*way = 0
	case r.Action == Ask && *way != 0:
		*way |= barring
	}
}

// isBarred tells whether a rule asks and may not let through what it would ask about.
func (r *Rule) isBarred(way how, opens bool) bool {
	return r.Action == Ask && (way&barring != 0 || !opens)
}

// leading are the rules that match, up to the first one that decides without looking into requests. They end before a rule
// that asks and cannot do so here, which is barred: what it would ask about does not pass by a later rule. IsThere tells
// whether a rule is about the address, and whether it may let somebody get there.
func (g *Gatekeeper) leading(
	ways []how, name string, port int, isThere func(*Rule) (bool, bool),
) (kept []*Rule, barred *Rule) {
	isPassed := name != "" && g.passed.have(name)
	for i, rule := range g.rules {
		if ways[i] == 0 || isPassed && rule.NeedsHTTP() && rule.Action != Ask || !anyHas(rule.ports, port) {
			continue
		}
		is, opens := isThere(rule)
		if !is {
			continue
		}
		if rule.isBarred(ways[i], opens && !isPassed) {
			return kept, rule
		}
		kept = append(kept, rule)
		if !rule.NeedsHTTP() {
			break
		}
	}
	return kept, nil
}

// decide decides by the rules that match, before one that is barred. Why says why nobody gets there whom no rule allows to.
func (g *Gatekeeper) decide(kept []*Rule, barred *Rule, to, why string) Admission {
	if len(kept) == 0 {
		if g.observe && why != "" {
			return denied(why)
		}
		switch {
		case why == "" && barred != nil:
			why = barred.title() + " cannot ask about requests to " + to
		case why == "":
			why = "no rule allows " + to
		}
		return g.refused(nil, why)
	}
	first := kept[0]
	if g.observe && why != "" && !anyAllows(kept) {
		return Admission{Action: Deny, Rule: first, Reason: why}
	}
	if first.NeedsHTTP() {
		return Admission{Action: Inspect, Kept: kept}
	}
	switch first.Action {
	case Allow:
		return Admission{Action: Allow, Rule: first}
	case Unplug:
		if reason := first.title() + " unplugs at " + to; !g.observe {
			return Admission{Action: Unplug, Rule: first, Reason: reason}
		} else if why == "" {
			why = reason
		}
	case Deny:
		if why == "" {
			why = first.title() + " denies " + to
		}
	}
	return g.refused(first, why)
}

func (g *Gatekeeper) refused(rule *Rule, reason string) Admission {
	if g.observe {
		return Admission{Action: Allow, Rule: rule, Reason: reason, Observed: true}
	}
	return Admission{Action: Deny, Rule: rule, Reason: reason}
}

func anyAllows(rules []*Rule) bool {
	for _, rule := range rules {
		if rule.mayAllow() {
			return true
		}
	}
	return false
}

// shuts tells whether a rule refuses whatever connection it matches.
func (r *Rule) shuts() bool {
	return r.Action != Allow && !r.NeedsHTTP() && len(r.ports) == 1 && r.ports[0] == everyPort[0]
}

// isAt tells whether an address is in a rule's ranges. One that is closed is allowed only by a rule that opens it.
func (r *Rule) isAt(address netip.Addr, isClosed bool) bool {
	if r.Action == Allow {
		return r.opens(address, isClosed)
	}
	return len(r.Addresses) == 0 || anyContains(r.ranges, address)
}

// opens tells whether a rule that allows may let somebody get to an address.
func (r *Rule) opens(address netip.Addr, isClosed bool) bool {
	if isClosed {
		return anyContains(r.opened, address)
	}
	return len(r.Addresses) == 0 || anyContains(r.ranges, address)
}

// title is what people call a rule: its number, counted from 1, and its name.
func (r *Rule) title() string {
	if r.Name != nil && *r.Name != "" {
		return fmt.Sprintf("rule %d (%s)", r.Index+1, *r.Name)
	}
	return fmt.Sprintf("rule %d", r.Index+1)
}
