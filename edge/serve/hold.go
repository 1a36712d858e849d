package serve

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"atoll/edge/control"
	"atoll/policy"
)

// approval is why a request passes about which a rule asks.
type approval struct {
	rule   string // the key of the rule
	reason string
}

// settle has the request judged, and holds it as long as somebody has to decide about it.
func (x *exchange) settle() *refusal {
	for {
		why := x.decide()
		if why != nil || !x.verdict.Asks() {
			x.leave(why == nil && x.verdict.Passes())
			return why
		}
		x.target, x.sent = nil, nil // secrets wait nowhere
		if why = x.hold(x.verdict.Rule); why != nil {
			return why
		}
		// It is judged again, and nobody else may judge it meanwhile.
		x.connection.finish(x)
	}
}

// leave has the request wait for no answer, if it does.
func (x *exchange) leave(passes bool) {
	if x.waits == nil {
		return
	}
	outcome := control.OutcomeChanged
	if x.ctx.Err() != nil {
		outcome = control.OutcomeGone
	}
	x.waits.leave(outcome, passes)
	x.waits = nil
}

// approve has a request pass that the rule asks about, if somebody has approved it before.
func (x *exchange) approve(verdict *policy.Verdict) {
	rule := verdict.Rule
	if x.approved.rule != rule.Key {
		reason := x.connection.sandbox.asks.reasonFor(x.grantedBy(rule))
		if reason == "" {
			return
		}
		x.approved = approval{rule.Key, reason}
	}
	*verdict = verdict.Approved(x.approved.reason)
}

// hold waits for an answer, or for other rules, and returns why the request is refused; nil: it is to be judged again.
func (x *exchange) hold(rule *policy.Rule) *refusal {
	if x.waits != nil && x.waits.ask.same.rule != rule.Key {
		x.leave(false)
	}
	if x.waits == nil {
		if why := x.enter(rule); why != nil {
			return why
		}
		x.noteAs(policy.Ask, rule, x.verdict.Reason)
	}
	select {
	case got := <-x.waits.decided:
		x.waits = nil
		if got.passes {
			x.approved = approval{rule.Key, got.reason}
			return nil
		}
		return x.refuseHeld(rule, got)
	case <-x.again:
		return nil
	case <-x.ctx.Done():
		x.leave(false)
		return x.refuseHeld(rule, isGone)
	}
}

// refuseHeld ends the wait of a request.
func (x *exchange) refuseHeld(rule *policy.Rule, got decision) *refusal {
	x.noteAs(policy.Deny, rule, got.reason)
	why := *got.why
	why.rule = rule
	return &why
}

func (x *exchange) noteAs(action string, rule *policy.Rule, reason string) {
	verdict := policy.Verdict{Action: action, Rule: rule, Reason: reason}
	x.connection.note(&verdict, x.request.Scheme, x.request.Method, x.request.Path.Send)
}

// enter reads the body and has the request wait with its equals.
func (x *exchange) enter(rule *policy.Rule) *refusal {
	if why := x.useless(rule); why != nil {
		return x.refuseHeld(rule, decision{reason: why.message, why: why})
	}
	asks := &x.connection.sandbox.asks
	if !asks.reserve() {
		return x.refuseHeld(rule, tooMany)
	}
	entered := false
	defer func() {
		if !entered {
			asks.free()
		}
	}()
	if why := x.readAll(rule); why != nil {
		return why
	}
	one := x.card(rule, now())
	if len(one.card.Path) > shownPathBytes || len(one.card.Method) > shownMethodBytes {
		return x.refuseHeld(rule, tooLong("ask_too_long", "its path, query or method is too long to be asked about"))
	}
	entered = true
	x.waits = asks.join(x.ctx, one, x.body.held, rule.Deadline())
	return nil
}

// useless is why a request could not pass if it was approved, as the rule's limit is reached; nil: it may.
func (x *exchange) useless(rule *policy.Rule) *refusal {
	meter := x.connection.sandbox.meters.Of(rule)
	if wait, isFull := meter.Full(now()); isFull {
		return atLimit(rule, wait)
	}
	if meter.Spent() {
		return spent(rule)
	}
	return nil
}

// readAll holds the whole body, if it is one that may be asked about.
func (x *exchange) readAll(rule *policy.Rule) *refusal {
	if err := x.holdAll(); err != nil {
		if x.in.ProtoMajor == 1 {
			x.stopReading() // the guest has a while to read the answer then
		}
		return x.refuseHeld(rule, tooLong("ask_body_too_long", err.Error()))
	}
	long := int64(len(x.body.held))
	if rule.MaxBodyBytes != nil && long > *rule.MaxBodyBytes {
		return x.refuseHeld(rule, decision{reason: "its body is too long", why: denied(&policy.Verdict{
			Rule: rule, Reason: "its body is too long", Remedy: "a shorter body, or a larger max_body_bytes in the rule",
		})})
	}
	if x.ruling.canaries.Any() && x.ruling.canaries.Fresh().Next(x.body.held) {
		return x.betray("the body of a request").(*refusal)
	}
	return nil
}

func (x *exchange) holdAll() error {
	const most = "a request that is asked about may have a body of at most 256 KiB"
	length := x.in.ContentLength
	switch {
	case length == 0:
		return nil
	case length > policy.DocumentMost:
		return fmt.Errorf("%s, and not %d bytes", most, length)
	case length < 0:
		length = policy.DocumentMost
	}
	ctx, cancel := context.WithTimeout(x.ctx, bodyMost)
	defer cancel()
	stop := context.AfterFunc(ctx, x.stopReading)
	defer stop()
	if err := x.body.hold(ctx, length+1); err != nil {
		return fmt.Errorf("its body does not come: %w", err)
	}
	if !x.body.all {
		return fmt.Errorf("%s", most)
	}
	return nil
}

// A guest has this long to send the body of a request that is asked about; the tests less.
var bodyMost = holdMost

func tooLong(code, reason string) decision {
	return decision{reason: reason, why: &refusal{
		status: http.StatusForbidden, code: code, message: "nobody can be asked about this request: " + reason,
		remedy: "a shorter request, or a rule that allows it without asking",
	}}
}

var tooMany = decision{reason: textTooMany, why: &refusal{
	status: http.StatusTooManyRequests, code: "too_many_asks", message: textTooMany, retry: 10 * time.Second,
	remedy: "wait until some are decided about",
}}

const textTooMany = "64 requests of this sandbox wait for a person to decide already"

// begun is the verdict on a request that is on its way when the rules begin to ask about it.
func begun(verdict policy.Verdict) policy.Verdict {
	return policy.Verdict{
		Action: policy.Deny, Rule: verdict.Rule, Reason: "rule " + verdict.Rule.Label() + " asks about it, and it was sent before",
		Remedy: "send it again",
	}
}
