package policy

import (
	"iter"
	"slices"
	"strings"
)

// Names that nobody outside has.
const (
	hostName      = "host.atoll.internal"    // of this host
	sandboxDomain = "sandbox.atoll.internal" // below it: of the other sandboxes of a team
)

// ModelsName is that of the gateway of models. No rule opens it, and none shuts it.
const ModelsName = "models.atoll.internal"

const nameMost = 253

// PlainHost is a name in the one form in which names are compared: in lower case and without a last dot. It is empty if the
// text is no name of a host, such as an address. It knows ASCII only: names of other letters are written in ASCII where a
// policy is checked, because programs differ in how.
func PlainHost(text string) string {
	if len(text) > nameMost+1 {
		return ""
	}
	text = strings.TrimSuffix(text, ".")
	if len(text) > nameMost {
		return ""
	}
	name := strings.Map(lowerASCII, text)
	last := ""
	for label := range strings.SplitSeq(name, ".") {
		if !isLabel(label) {
			return ""
		}
		last = label
	}
	if readsAsNumber(last) {
		return ""
	}
	return name
}

func lowerASCII(char rune) rune {
	if 'A' <= char && char <= 'Z' {
		return char + 'a' - 'A'
	}
	return char
}

func isLabel(label string) bool {
	if label == "" || len(label) > 63 || label[0] == '-' || label[len(label)-1] == '-' {
		return false
	}
	for i := range len(label) {
		if char := label[i]; char != '-' && char != '_' && (char < '0' || char > '9') && (char < 'a' || char > 'z') {
			return false
		}
	}
	return true
}

// readsAsNumber tells whether a last label makes programs read the whole name as an address: 1.2.3.0x7f.
func readsAsNumber(label string) bool {
	digits, isHexadecimal := strings.CutPrefix(label, "0x")
	for i := range len(digits) {
		if isHexadecimal && !isHex(digits[i]) || !isHexadecimal && (digits[i] < '0' || digits[i] > '9') {
			return false
		}
	}
	return true
}

// suffixes are the parent domains of a name, the nearest first: a.b.c is below b.c and c.
func suffixes(name string) iter.Seq[string] {
	return func(yield func(string) bool) {
		for {
			_, rest, found := strings.Cut(name, ".")
			if !found || !yield(rest) {
				return
			}
			name = rest
		}
	}
}

// IsInternal tells whether a plain name is this host's, another sandbox's, or that of the gateway of models. No nameserver is
// asked for it, and * does not open it.
func IsInternal(name string) bool {
	return name == hostName || name == ModelsName || SandboxRef(name) != ""
}

// SandboxRef is the name or id of the sandbox that a plain name is of; it is empty if the name is of none.
func SandboxRef(name string) string {
	ref, domain, _ := strings.Cut(name, ".")
	if domain != sandboxDomain {
		return ""
	}
	return ref
}

// Names that mean something in one network only. Behind a proxy they resolve in the proxy's network.
var localDomains = []string{
	"corp", "home", "home.arpa", "internal", "intranet", "lan", "local", "localdomain", "private",
}

// whyLocal says why a plain name may mean something else in each network; it is empty if it does not.
func whyLocal(name string) string {
	if !strings.Contains(name, ".") {
		return "a name without a dot, which each network has its own of"
	}
	if slices.ContainsFunc(localDomains, func(domain string) bool {
		return name == domain || strings.HasSuffix(name, "."+domain)
	}) {
		return "a name of local networks"
	}
	return ""
}

// isLoopbackName tells whether a plain name means the computer that resolves it.
func isLoopbackName(name string) bool {
	last := name[strings.LastIndexByte(name, '.')+1:]
	return last == "localhost" || last == "localdomain"
}

// how says in which ways the hosts of a rule have a name; 0: they do not.
type how byte

const (
	widely       how = 1 << iota // they are *, or there are none
	specifically                 // by the name itself, or by *. and what it is below
	exposing                     // by the name itself, or by the pattern for the names of all sandboxes
	barring                      // it asks about requests, but may not let any through
)

const never how = 0 // no pattern has it so

// patterns tell of many rules at once which ones have a name. A guest chooses the names, and how many labels they have, so
// it is not compared with each pattern.
type patterns struct {
	unnamed []how // of a destination without a name
	wide    []how // of a name that no pattern has
	exact   map[string][]int
	below   map[string][]int
}

// patternsOf reads the patterns of each rule. A rule without one has every destination, also one without a name.
func patternsOf(rules []*Rule) *patterns {
	made := newPatterns(len(rules))
	for i, rule := range rules {
		if len(rule.Hosts) == 0 {
			made.unnamed[i], made.wide[i] = widely, widely
		}
		made.add(rule.Hosts, i)
	}
	return made
}

func newPatterns(rules int) *patterns {
	return &patterns{
		unnamed: make([]how, rules), wide: make([]how, rules), exact: map[string][]int{}, below: map[string][]int{},
	}
}

// add adds patterns of a rule. What is no pattern has no name.
func (p *patterns) add(texts []string, rule int) {
	for _, text := range texts {
		if text == "*" {
			p.wide[rule] = widely
			continue
		}
		text, isBelow := strings.CutPrefix(text, "*.")
		name := PlainHost(text)
		switch {
		case name == "":
		case isBelow:
			p.below[name] = append(p.below[name], rule)
		default:
			p.exact[name] = append(p.exact[name], rule)
		}
	}
}

// of tells of each rule how it has a plain name; an empty one is a destination without a name.
func (p *patterns) of(name string) []how {
	if name == "" {
		return slices.Clone(p.unnamed)
	}
	found := slices.Clone(p.wide)
	for _, rule := range p.exact[name] {
		found[rule] |= specifically | exposing
	}
	for suffix := range suffixes(name) {
		way := specifically
		if suffix == sandboxDomain {
			way |= exposing
		}
		for _, rule := range p.below[suffix] {
			found[rule] |= way
		}
	}
	return found
}

// have tells whether a plain name is among patterns that belong to no rules.
func (p *patterns) have(name string) bool { return p.of(name)[0] != 0 }

// allOf are patterns that belong to no rules.
func allOf(texts []string) *patterns {
	made := newPatterns(1)
	made.add(texts, 0)
	return made
}
