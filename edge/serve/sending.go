package serve

import (
	"context"
	"errors"
	"net/http"

	"atoll/edge/change"
	"atoll/policy"
)

// passing is the rule by which something passes. What is only observed is not changed.
func passing(verdict *policy.Verdict) *policy.Rule {
	if verdict.Rule == nil || verdict.Observed {
		return &policy.Rule{Action: policy.Allow}
	}
	return verdict.Rule
}

func changes(rule *policy.Rule) bool {
	return len(rule.SetHeaders) > 0 || len(rule.RemoveHeaders) > 0 || len(rule.Inject) > 0
}

// unsendable is the verdict on a request to which the changes of a rule cannot be made.
func unsendable(rule *policy.Rule, why string) policy.Verdict {
	return policy.Verdict{Action: policy.Deny, Rule: rule, Reason: "it cannot be sent as the policy wants it: " + why}
}

// plan makes the request to send, with the changes of the rule, and has the ceiling judge it: a change leads past no
// ceiling.
func (x *exchange) plan() *refusal {
	x.target, x.sent, x.above = nil, x.request, nil
	if x.verdict.Passes() || x.verdict.Asks() {
		rule := passing(&x.verdict)
		if why := x.change(rule); why != nil {
			return why
		}
		if changes(rule) {
			x.sent = nil
		}
	}
	if x.ruling.ceiling == nil {
		return nil
	}
	if x.sent == nil {
		sent, err := afterChanges(x.parts(), x.target, x.connection.to, *x.ruling.ceiling, x.read)
		var fault *policy.Fault
		if errors.As(err, &fault) {
			return x.unsendable(x.verdict.Rule, fault.Reason)
		}
		// As it was judged, and not as the changes wrote it.
		x.target.Header, x.target.Path, x.target.Query = sent.Header, sent.Path.Send, sent.Query.Send
		x.sent = sent
	}
	over := policy.Judge(*x.ruling.ceiling, x.sent, false)
	x.sent.Seal()
	x.verdict, x.above = policy.Bounded(x.verdict, &over), over.Rule
	return nil
}

// read is the body that is sent with a header.
func (x *exchange) read(header http.Header, length int64) policy.Body {
	ctx, cancel := context.WithTimeout(x.ctx, holdMost)
	defer cancel()
	return x.body.judged(ctx, header, length)
}

func notKept(http.Header, int64) policy.Body { return policy.Body{Unclear: "the body was not kept"} }

// afterChanges is a request as the changes of a rule left it, in the form in which a ceiling judges it and it is sent.
func afterChanges(
	came policy.Parts, target *change.Target, to policy.Destination, ceiling policy.Kept,
	read func(http.Header, int64) policy.Body,
) (*policy.Request, error) {
	parts := came
	parts.Header = target.Header.Clone()
	parts.Target = target.Path
	if target.Query != "" {
		parts.Target += "?" + target.Query
	}
	parts.Body = func() policy.Body { return read(parts.Header, parts.Length) }
	if target.Body != nil {
		parts.Length = int64(len(target.Body))
		parts.Body = func() policy.Body { return bodyOf(target.Body, parts.Header) }
	}
	return policy.NewRequest(parts, to, ceiling)
}

// judgedBy is the verdict of new rules on the current exchange.
func (x *exchange) judgedBy(by *ruling) policy.Verdict {
	if x.request == nil {
		return by.judgeRaw()
	}
	sent := x.sent
	if sent == nil && by.ceiling != nil {
		// No ceiling has judged it before. What is sent does not change any more, and its body may be gone.
		var err error
		if sent, err = afterChanges(x.parts(), x.target, x.connection.to, *by.ceiling, notKept); err != nil {
			return policy.Verdict{Action: policy.Deny, Reason: err.Error(), Ceiling: true}
		}
	}
	own := policy.Judge(by.kept, x.request, by.observe)
	switch {
	case own.Asks() && x.approved.rule == own.Rule.Key:
		own = own.Approved(x.approved.reason)
	case own.Asks():
		own = begun(own)
	}
	return by.bound(own, sent)
}

// longest is how many bytes a body may have whose length was not known.
type longest struct {
	bytes       int64
	rule        *policy.Rule
	isOfCeiling bool
}

// longest is the smaller bound of the rule and of the ceiling's.
func (x *exchange) longest() *longest {
	var found *longest
	if rule := passing(&x.verdict); rule.MaxBodyBytes != nil {
		found = &longest{*rule.MaxBodyBytes, rule, false}
	}
	if x.above != nil && x.above.MaxBodyBytes != nil && (found == nil || *x.above.MaxBodyBytes < found.bytes) {
		found = &longest{*x.above.MaxBodyBytes, x.above, true}
	}
	return found
}
