// Package policy judges connections and requests by rules. It is pure: it opens and resolves nothing, and does not change
// its arguments.
package policy

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"net/textproto"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/net/http/httpguts"
)

// What a rule does.
const (
	Allow  = "allow"
	Deny   = "deny"
	Unplug = "unplug"
	// Ask has a request held until somebody outside decides about it.
	Ask = "ask"
)

// Rule is one rule of a policy, in the form in which it comes.
type Rule struct {
	Action        string              `json:"action"`
	Name          *string             `json:"name"`
	Hosts         []string            `json:"hosts"`
	Addresses     []string            `json:"addresses"`
	Ports         []json.RawMessage   `json:"ports"`
	Protocol      string              `json:"protocol"`
	Methods       []string            `json:"methods"`
	Paths         []string            `json:"paths"`
	Query         map[string][]string `json:"query"`
	Headers       map[string][]string `json:"headers"`
	MaxBodyBytes  *int64              `json:"max_body_bytes"`
	JSON          map[string][]string `json:"json"`
	MCP           *MCP                `json:"mcp"`
	SetHeaders    map[string]string   `json:"set_headers"`
	RemoveHeaders []string            `json:"remove_headers"`
	Inject        []Inject            `json:"inject"`
	Limit         *Limit              `json:"limit"`
	Ask           *Asking             `json:"ask"`

	Index int    `json:"-"`
	Key   string `json:"-"` // its text: equal rules of two versions of a policy have the same

	ports       []portRange // that it is about, in order; those of the web or all if it names none
	ranges      []netip.Prefix
	opened      []netip.Prefix // the ranges that are not public, if it allows them
	conditional bool
	paths       []glob
	query       map[string][]glob
	headers     map[string][]glob
	fields      map[string][]glob
	mcp         *mcpCondition
}

// MCP is a condition on messages of the Model Context Protocol.
type MCP struct {
	Methods   []string            `json:"methods"`
	Tools     []string            `json:"tools"`
	Arguments map[string][]string `json:"arguments"`
}

// Limit bounds the traffic that a rule lets through. A missing one does not bound.
type Limit struct {
	Requests   *int64   `json:"requests"`
	PerSeconds *float64 `json:"per_s"`
	BytesS     *int64   `json:"bytes_s"`
	TotalBytes *int64   `json:"total_bytes"`
}

// ParseRules reads and compiles rules.
func ParseRules(texts []json.RawMessage) ([]*Rule, error) {
	rules := make([]*Rule, len(texts))
	for i, text := range texts {
		rules[i] = &Rule{}
		if err := rules[i].read(text); err != nil {
			return nil, fmt.Errorf("rule %d: %w", i, err)
		}
		rules[i].Index = i
	}
	return rules, nil
}

func (r *Rule) read(text json.RawMessage) error {
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(r); err != nil {
		return err
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return errors.New("there is text after it")
	}
	var compact bytes.Buffer
	if err := json.Compact(&compact, text); err != nil {
		return err
	}
	r.Key = compact.String()
	if err := r.check(); err != nil {
		return err
	}
	return r.compile()
}

func (r *Rule) check() error {
	switch {
	case !slices.Contains([]string{Allow, Deny, Unplug, Ask}, r.Action):
		return fmt.Errorf("there is no action %q", r.Action)
	case r.Protocol != "" && r.Protocol != "tcp" && r.Protocol != "http":
		return fmt.Errorf("there is no protocol %q", r.Protocol)
	case r.MaxBodyBytes != nil && *r.MaxBodyBytes < 0:
		return errors.New("max_body_bytes is negative")
	case !r.mayAllow() && r.HasChanges():
		return errors.New("only a rule that allows or asks can change requests")
	case r.Action != Ask && r.Ask != nil:
		return errors.New("only a rule that asks can say how")
	}
	for name, value := range r.SetHeaders {
		if !mayChange(name) || !httpguts.ValidHeaderFieldValue(value) {
			return fmt.Errorf("the header %q cannot be set", name)
		}
	}
	for _, name := range r.RemoveHeaders {
		if !mayChange(name) {
			return fmt.Errorf("the header %q cannot be removed", name)
		}
	}
	for i := range r.Inject {
		if err := r.Inject[i].check(); err != nil {
			return err
		}
	}
	return errors.Join(r.Limit.check(), r.Ask.check())
}

var fixedHeaders = []string{
	"host", "connection", "content-length", "transfer-encoding", "te", "trailer", "upgrade", "expect",
	"keep-alive", "proxy-connection", "proxy-authorization", "http2-settings",
}

func mayChange(name string) bool {
	return httpguts.ValidHeaderFieldName(name) && !slices.Contains(fixedHeaders, strings.ToLower(name))
}

func (l *Limit) check() error {
	if l == nil {
		return nil
	}
	if l.Requests != nil && (*l.Requests < 1 || *l.Requests > 1<<20 || l.PerSeconds == nil || *l.PerSeconds <= 0) {
		return errors.New("a limit of requests needs 1 to 1048576 requests and a per_s above 0")
	}
	if l.BytesS != nil && *l.BytesS < 1 || l.TotalBytes != nil && *l.TotalBytes < 0 {
		return errors.New("a limit of bytes is not positive")
	}
	return nil
}

func (r *Rule) compile() error {
	r.conditional = r.Protocol == "http" || len(r.Methods) > 0 || len(r.Paths) > 0 || len(r.Query) > 0 ||
		len(r.Headers) > 0 || r.MaxBodyBytes != nil || r.NeedsBody()
	r.paths = pathGlobs(r.Paths)
	if r.Action != Allow {
		// Some servers do not tell upper from lower case: /Admin is /admin.
		for i := range r.paths {
			r.paths[i].lower()
		}
	}
	r.query = globMap(r.Query, func(name string) string { return name })
	r.headers = globMap(r.Headers, textproto.CanonicalMIMEHeaderKey)
	r.fields = globMap(r.JSON, func(name string) string { return name })
	if r.MCP != nil {
		r.mcp = &mcpCondition{
			methods:   textGlobs(r.MCP.Methods),
			tools:     textGlobs(r.MCP.Tools),
			arguments: globMap(r.MCP.Arguments, func(name string) string { return name }),
		}
	}
	return r.compilePlaces()
}

func (r *Rule) compilePlaces() error {
	var err error
	if r.ports, err = parsePorts(r.Ports); err != nil {
		return err
	}
	switch {
	case len(r.ports) > 0:
	case r.NeedsHTTP():
		r.ports = webPorts
	default:
		r.ports = everyPort
	}
	for _, text := range r.Addresses {
		within, err := ParseRange(text)
		if err != nil {
			return err
		}
		r.ranges = append(r.ranges, within)
		if opens(within) {
			r.opened = append(r.opened, within)
		}
	}
	return nil
}

func globMap(patterns map[string][]string, key func(string) string) map[string][]glob {
	globs := make(map[string][]glob, len(patterns))
	for name, each := range patterns {
		globs[key(name)] = textGlobs(each)
	}
	return globs
}

// NeedsHTTP tells whether the rule looks into requests, to judge, to change or to hold them. What is not HTTP it does not
// allow.
func (r *Rule) NeedsHTTP() bool { return r.conditional || r.HasChanges() || r.Action == Ask }

// mayAllow tells whether something may pass by the rule, at once or when somebody has approved it.
func (r *Rule) mayAllow() bool { return r.Action == Allow || r.Action == Ask }

// NeedsBody tells whether a condition is on the content of bodies.
func (r *Rule) NeedsBody() bool { return len(r.JSON) > 0 || r.MCP != nil }

// HasChanges tells whether the rule changes or limits what it allows.
func (r *Rule) HasChanges() bool {
	return len(r.SetHeaders) > 0 || len(r.RemoveHeaders) > 0 || len(r.Inject) > 0 || r.Limit != nil
}

// NamesPort tells whether the rule lists the port, alone or in a range.
func (r *Rule) NamesPort(port int) bool { return len(r.Ports) > 0 && anyHas(r.ports, port) }

// Label is how the rule is named in refusals: by its name, or else its number, counted from 1.
func (r *Rule) Label() string {
	if r.Name != nil && *r.Name != "" {
		return *r.Name
	}
	return strconv.Itoa(r.Index + 1)
}

// Fits tells whether the rule is for a destination at all. The supervisor has chosen it for that before: here it keeps a
// secret from going to another server by a mistake.
func (r *Rule) Fits(to Destination) bool {
	return (len(r.Hosts) == 0 || slices.ContainsFunc(r.Hosts, func(host string) bool { return MatchesHost(host, to.Name) })) &&
		(len(r.Addresses) == 0 || r.isIn(to.Address)) && (len(r.Ports) == 0 || r.NamesPort(to.Port))
}

func (r *Rule) isIn(text string) bool {
	address, ok := PlainAddress(text)
	return ok && anyContains(r.ranges, address)
}
