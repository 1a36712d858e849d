package policy

import (
	"fmt"
	"net/netip"
	"strings"
	"unicode"
)

const (
	thisHost = "this host, which only a rule for " + hostName + " opens"
	loopback = "127.0.0.1"
)

// Bounds are a policy and the ceiling over it, ready to judge connections.
type Bounds struct {
	Own     *Gatekeeper // nil: no rules, everything public
	Ceiling *Gatekeeper // nil: the sandbox's team has none
}

// Asked is a destination with the facts about it. It has a name, or else one address.
type Asked struct {
	Name      string  `json:"name"`
	Port      int     `json:"port"`
	Addresses []Known `json:"addresses"` // none: the name has not been resolved
}

// Known is an address, and whether it is one of this host's own.
type Known struct {
	Address string `json:"address"`
	Own     bool   `json:"own"`
}

// Way is the decision about a destination.
type Way struct {
	Admission
	Address string // to connect to; empty: it is refused, or a proxy resolves the name
	// There is no decision yet: the name is known, and its addresses are needed.
	Resolve bool
}

// Decide judges a destination as a guest comes to it: first the name, which only then may be resolved, and then the
// connection to the first of its addresses that is not denied.
func (b *Bounds) Decide(asked Asked) Way {
	if asked.Name == "" {
		return b.toAddress(asked)
	}
	known := b.Name(asked.Name)
	name := PlainHost(asked.Name)
	switch {
	case known.Action != Allow:
		return Way{Admission: known}
	case b.Proxied(name):
		return Way{Admission: b.both(func(each *Gatekeeper) Admission { return each.Unresolved(name, asked.Port) })}
	case IsInternal(name):
		return Way{Admission: b.to(name, loopback, asked.Port), Address: loopback}
	case len(asked.Addresses) == 0:
		return Way{Resolve: true}
	}
	var first Way
	for i, each := range asked.Addresses {
		found := Way{Admission: b.at(name, each, asked.Port), Address: each.Address}
		if found.Action != Deny {
			return found
		}
		if i == 0 {
			first = found
		}
	}
	return first
}

// Connection judges a connection that is open, under a name that the guest knows, or none. An address without one that a
// proxy was to resolve is empty.
func (b *Bounds) Connection(name string, to Known, port int) Admission {
	switch {
	case name == "":
		return b.toAddress(Asked{Port: port, Addresses: []Known{to}}).Admission
	case b.Proxied(name):
		return b.both(func(each *Gatekeeper) Admission { return each.Unresolved(name, port) })
	case to.Address == "":
		return denied("a proxy connected to it, and the policy has none for it now")
	}
	return b.at(name, to, port)
}

// Proxied tells whether a proxy connects to a plain name; an empty one is an address for which there is no name.
func (b *Bounds) Proxied(name string) bool { return b.Own != nil && b.Own.Proxied(name) }

// LooksInto tells whether a connection to a plain name must show that it asks for that name: the policy may pass a
// connection that the ceiling wants to look into, and the other way round.
func (b *Bounds) LooksInto(name string) bool {
	return b.Own != nil && b.Own.LooksInto(name) || b.Ceiling != nil && b.Ceiling.LooksInto(name)
}

// LeadsTo tells whether some port at an address may be reached under a plain name, or going there unplugs.
func (b *Bounds) LeadsTo(name string, address netip.Addr) bool {
	if b.Own == nil {
		return WhyClosed(Plain(address)) == ""
	}
	text := address.String()
	return b.Own.KnowsAddress(name, text) && (b.Ceiling == nil || b.Ceiling.KnowsAddress(name, text))
}

func (b *Bounds) toAddress(asked Asked) Way {
	if len(asked.Addresses) == 0 {
		return Way{Admission: denied("there is neither a name nor an address")}
	}
	to := asked.Addresses[0]
	if address, ok := PlainAddress(to.Address); ok && b.Own != nil && Synthetic.Contains(address) {
		return Way{Admission: denied("the address stands for no name: resolve the name again")}
	}
	return Way{Admission: b.at("", to, asked.Port), Address: to.Address}
}

// Name judges a name before it is resolved: no nameserver may be asked about a denied name.
func (b *Bounds) Name(text string) Admission {
	if b.Own != nil {
		return b.both(func(each *Gatekeeper) Admission { return each.Name(text) })
	}
	switch name := PlainHost(text); {
	case name == "":
		return denied(quoted(text) + " is no host name")
	case name == ModelsName:
		return denied("this sandbox has no models")
	case IsInternal(name):
		return denied("no rule exposes " + name)
	}
	return Admission{Action: Allow}
}

func (b *Bounds) at(name string, to Known, port int) Admission {
	found := b.to(name, to.Address, port)
	if to.Own && !IsInternal(name) && !found.refuses() {
		return Admission{Action: Deny, Rule: found.Rule, Reason: place(name, to.Address) + " is " + thisHost}
	}
	return found
}

func (b *Bounds) to(name, address string, port int) Admission {
	if b.Own != nil {
		return b.both(func(each *Gatekeeper) Admission { return each.Connection(name, address, port) })
	}
	to, ok := PlainAddress(address)
	_, fault := destination(name, port)
	switch {
	case fault != "":
		return denied(fault)
	case !ok:
		return denied(quoted(address) + " is no address to connect to")
	case WhyClosed(to) != "":
		return denied(place(name, address) + " is " + WhyClosed(to))
	}
	return Admission{Action: Allow, Reason: "every public address is allowed"}
}

// both has the ceiling judge too: a connection must pass both, and is inspected if one of them wants that.
func (b *Bounds) both(judge func(*Gatekeeper) Admission) Admission {
	own := judge(b.Own)
	if b.Ceiling == nil {
		return own
	}
	ceiling := judge(b.Ceiling)
	switch {
	case own.Action == Unplug:
		return own
	case ceiling.Action == Unplug, ceiling.Action == Deny && own.Action != Deny:
		ceiling.Ceiling = true
		ceiling.Reason = "the team's ceiling: " + ceiling.Reason
		return ceiling
	case own.Action == Deny:
		return own
	case own.Action == Inspect || ceiling.Action == Inspect:
		return Admission{Action: Inspect, Kept: own.Deciding(), Above: ceiling.Deciding()}
	}
	own.Above = ceiling.Deciding()
	return own
}

const quotedMost = 80

// quoted is a text of somebody else as it stands in a reason, on one line.
func quoted(text string) string {
	mark := '\''
	if strings.ContainsRune(text, '\'') && !strings.ContainsRune(text, '"') {
		mark = '"'
	}
	var out strings.Builder
	out.WriteRune(mark)
	count := 0
	for _, char := range text {
		if count++; count > quotedMost {
			break
		}
		switch {
		case char == mark || char == '\\':
			out.WriteRune('\\')
			out.WriteRune(char)
		case char == '\n':
			out.WriteString(`\n`)
		case char == '\r':
			out.WriteString(`\r`)
		case char == '\t':
			out.WriteString(`\t`)
		case unicode.IsPrint(char):
			out.WriteRune(char)
		case char < 0x100:
			fmt.Fprintf(&out, `\x%02x`, char)
		case char < 0x10000:
			fmt.Fprintf(&out, `\u%04x`, char)
		default:
			fmt.Fprintf(&out, `\U%08x`, char)
		}
	}
	out.WriteRune(mark)
	return out.String()
}
