package policy

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
)

// tri is the result of a condition. The order matters: the worst of several is the least.
type tri int

const (
	no tri = iota
	unclear
	yes
)

// Verdict is the decision about a request or a connection.
type Verdict struct {
	Action string
	Rule   *Rule // nil: no rule decided
	Reason string
	Remedy string
	// It would not be let through, but the policy only observes.
	Observed bool
	// The ceiling of the sandbox's team decided, and the rule is one of it.
	Ceiling bool
	near    string // what the nearest rule that allows something wants instead; empty: a rule decided, or there is none
}

// Why is the reason, whose it is, and which rule is near.
func (v *Verdict) Why() string {
	why := v.Reason
	if v.near != "" {
		why += "; " + v.near
	}
	if v.Ceiling {
		return "the team's ceiling: " + why
	}
	return why
}

// Passes tells whether it is let through.
func (v *Verdict) Passes() bool { return v.Action == Allow || v.Observed }

// Asks tells whether somebody has to approve it before it is let through.
func (v *Verdict) Asks() bool { return v.Action == Ask && !v.Observed }

// Approved is the verdict on a request that was asked about, and may pass for this reason. The rule changes it as it would
// if it allowed it.
func (v *Verdict) Approved(reason string) Verdict {
	return Verdict{Action: Allow, Rule: v.Rule, Reason: reason}
}

// Judge decides on a request.
func Judge(kept Kept, request *Request, observe bool) Verdict {
	sieve := newSieve(request)
	for i := range kept.screens {
		if sieve.rejects(&kept.screens[i]) {
			continue
		}
		if rule := kept.Rules[i]; rule.fits(request) {
			return Verdict{
				Action: rule.Action, Rule: rule, Reason: "rule " + rule.Label() + " decides",
				Remedy:   "change rule " + rule.Label() + ", or put one that allows it before",
				Observed: observe && rule.Action != Allow,
			}
		}
	}
	near := nearest(kept, request)
	remedy := near
	if near == "" {
		remedy = "a rule that allows " + request.Method + " to " + request.Host
	}
	return Verdict{Action: Deny, Reason: "no rule allows it", Remedy: remedy, Observed: observe, near: near}
}

// JudgeRaw decides on a connection that is not HTTP.
func JudgeRaw(kept Kept, observe bool) Verdict {
	for _, rule := range kept.Rules {
		switch {
		case rule.Action == Allow && rule.NeedsHTTP():
			continue
		case rule.Action == Ask:
			// A later rule does not decide: a server may take what passes as another protocol for a request.
			return Verdict{
				Action: Deny, Rule: rule, Reason: "it is not HTTP, and rule " + rule.Label() + " can ask about requests only",
				Remedy: "speak HTTP, or put a rule that allows it before rule " + rule.Label(), Observed: observe,
			}
		}
		return Verdict{
			Action: rule.Action, Rule: rule, Reason: "rule " + rule.Label() + " decides",
			Remedy: "speak HTTP, or change rule " + rule.Label(), Observed: observe && rule.Action != Allow,
		}
	}
	return Verdict{
		Action: Deny, Reason: "it is not HTTP, and no rule allows that", Observed: observe,
		Remedy: "a rule for the destination that does not look into requests",
	}
}

func (r *Rule) fits(request *Request) bool {
	found := r.judge(request)
	if r.Action == Allow {
		return found == yes
	}
	return found != no
}

// Cheap ones come first: the body is read only when all else may hold.
var conditions = [...]func(*Rule, *Request) tri{
	judgeMethod, judgeLength, judgePath, judgeQuery, judgeHeaders, judgeFields, judgeMCP,
}

// conditionsOfHead are those that need no body.
var conditionsOfHead = conditions[:5]

// judge is yes when all conditions hold, no when one does not, and otherwise unclear.
func (r *Rule) judge(request *Request) tri {
	if !r.conditional {
		return yes
	}
	result := yes
	for _, condition := range conditions {
		if result = min(result, condition(r, request)); result == no {
			return no
		}
	}
	return result
}

func judgeMethod(r *Rule, request *Request) tri {
	if len(r.Methods) == 0 || slices.Contains(r.Methods, request.Method) {
		return yes
	}
	return no
}

// judgeLength trusts a body without a known length for a rule that allows: it is cut when it gets too long.
func judgeLength(r *Rule, request *Request) tri {
	switch {
	case r.MaxBodyBytes == nil:
		return yes
	case request.Length < 0 && r.Action != Allow:
		return unclear
	case request.Length > *r.MaxBodyBytes:
		return no
	}
	return yes
}

func judgePath(r *Rule, request *Request) tri {
	if len(r.Paths) == 0 {
		return yes
	}
	matched := 0
	for _, view := range request.Path.Views {
		if r.Action != Allow {
			view = lowered(view)
		}
		if anyMatches(r.paths, view) {
			matched++
		}
	}
	switch {
	case request.Path.unclear:
		return unclear
	case matched == 0:
		return no
	case matched < len(request.Path.Views):
		return unclear
	}
	return yes
}

func judgeQuery(r *Rule, request *Request) tri {
	result := yes
	for name, globs := range r.query {
		result = min(result, request.Query.judge(name, globs))
	}
	return result
}

func judgeHeaders(r *Rule, request *Request) tri {
	result := yes
	for name, globs := range r.headers {
		values := request.Header[name]
		if name == "Host" {
			values = []string{request.Host}
		}
		switch {
		case len(values) > 1 || hasTwin(request.Header, name):
			result = min(result, unclear)
		case len(values) == 0 || !anyMatches(globs, values[0]):
			return no
		}
	}
	return result
}

// hasTwin tells whether another name is the same for servers that do not tell `_` from `-`.
func hasTwin(header http.Header, name string) bool {
	for each := range header {
		if each != name && strings.Contains(each, "_") && SameHeader(each, name) {
			return true
		}
	}
	return false
}

// SameHeader tells whether servers may take two names for the same one.
func SameHeader(one, other string) bool {
	return strings.EqualFold(strings.ReplaceAll(one, "_", "-"), strings.ReplaceAll(other, "_", "-"))
}

// RemoveHeader removes a header under all names that servers may take for it.
func RemoveHeader(header http.Header, name string) {
	for each := range header {
		if SameHeader(each, name) {
			delete(header, each)
		}
	}
}

func judgeFields(r *Rule, request *Request) tri {
	if len(r.fields) == 0 {
		return yes
	}
	body := request.document()
	switch {
	case body.unclear != "":
		return unclear
	case body.absent:
		return no
	}
	result := yes
	for path, globs := range r.fields {
		result = min(result, body.root.judge(path, globs))
	}
	return result
}

func judgeMCP(r *Rule, request *Request) tri {
	if r.mcp == nil {
		return yes
	}
	return r.mcp.judge(request.document(), r.Action == Allow)
}

// nearest tells the missing condition of the allowing rule that lacks least. The first of equals counts.
func nearest(kept Kept, request *Request) string {
	var found *Rule
	most := -1
	for _, rule := range kept.Rules {
		if !rule.mayAllow() {
			continue
		}
		holds := 0
		for _, condition := range conditionsOfHead {
			if condition(rule, request) == yes {
				holds++
			}
		}
		if holds > most {
			found, most = rule, holds
		}
	}
	if found == nil {
		return ""
	}
	does := "allows"
	if found.Action == Ask {
		does = "asks about"
	}
	return fmt.Sprintf("rule %s %s it %s", found.Label(), does, found.wants(request))
}

func (r *Rule) wants(request *Request) string {
	switch {
	case judgeMethod(r, request) != yes:
		return "with the method " + strings.Join(r.Methods, ", ")
	case judgeLength(r, request) != yes:
		return fmt.Sprintf("with a body of at most %d bytes", *r.MaxBodyBytes)
	case judgePath(r, request) != yes:
		return "for the paths " + strings.Join(r.Paths, ", ")
	case judgeQuery(r, request) != yes:
		return "with other parameters in the query"
	case judgeHeaders(r, request) != yes:
		return "with other headers"
	}
	if why := request.document().unclear; why != "" {
		return "with a body that can be judged: " + why
	}
	return "with another body"
}

// Changes names what a rule does to the requests that it allows, without any secret.
func (r *Rule) Changes() []string {
	changes := []string{}
	for _, name := range r.RemoveHeaders {
		changes = append(changes, "remove "+name)
	}
	for name := range r.SetHeaders {
		changes = append(changes, "set "+name)
	}
	slices.Sort(changes)
	for _, each := range r.Inject {
		changes = append(changes, "inject "+each.Title()+" into "+each.Into+" "+each.Key)
	}
	if r.Limit != nil {
		changes = append(changes, "limit")
	}
	return changes
}

// IsGRPC tells whether a request is one of gRPC, whose errors are in its own words.
func IsGRPC(header http.Header) bool {
	return strings.HasPrefix(header.Get("Content-Type"), "application/grpc")
}
