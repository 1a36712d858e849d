package serve

import (
	"errors"
	"net/http"
	"os"
	"strings"

	"atoll/channel"
	"atoll/edge/change"
	"atoll/edge/control"
	"atoll/policy"
)

// Judge gives the verdict on a connection and a request on it, by the code that judges on the wire. It owns the
// descriptor.
func Judge(message *control.Message, file *os.File) (*control.Judged, error) {
	var question control.Question
	if err := channel.Content(file, &question); err != nil {
		return nil, err
	}
	answer, err := answerTo(&question)
	var fault *policy.Fault
	switch {
	case errors.As(err, &fault):
		answer = refused(fault.Reason)
	case err != nil:
		answer = refused("the question cannot be judged: " + err.Error())
	}
	answer.Op, answer.ID = "judged", message.ID
	return &answer, nil
}

func refused(reason string) control.Judged {
	return control.Judged{Action: policy.Deny, Reason: reason, Changes: []string{}}
}

// answerTo judges the connection, and then the request where the wire would look into it.
func answerTo(question *control.Question) (control.Judged, error) {
	bounds, err := boundsOf(question.Policy)
	if err != nil {
		return control.Judged{}, err
	}
	way := bounds.Decide(question.Destination)
	if way.Resolve {
		return control.Judged{Resolve: true, Changes: []string{}}, nil
	}
	asked := &question.Request
	name := policy.PlainHost(question.Destination.Name)
	// By name, each plain request must say which host it is for.
	looksInto := way.Action == policy.Allow && asked.Scheme == "http" && name != "" && bounds.LooksInto(name)
	if way.Action != policy.Inspect && !looksInto {
		return aboutConnection(&way.Admission), nil
	}
	by := rulingOf(question.Policy, &way.Admission)
	defer by.secrets.Wipe()
	to := policy.Destination{Name: name, Address: way.Address, Port: question.Destination.Port}
	verdict := policy.Verdict{}
	if asked.Scheme == "http" || asked.Scheme == "https" {
		verdict, err = by.judgeAsked(asked, to)
	} else {
		verdict = by.judgeRaw()
	}
	return aboutRequest(&verdict), err
}

func boundsOf(document *control.Policy) (*policy.Bounds, error) {
	bounds := &policy.Bounds{}
	if document == nil {
		return bounds, nil
	}
	rules, err := policy.ParseRules(document.Rules)
	if err != nil {
		return nil, err
	}
	bounds.Own = policy.NewGatekeeper(policy.Terms{
		Rules: rules, Observe: document.Observe, Passthrough: document.Passthrough, Proxy: document.Proxy,
	})
	if document.Ceiling == nil {
		return bounds, nil
	}
	if rules, err = readCeiling(document.Ceiling); err == nil {
		bounds.Ceiling = policy.NewGatekeeper(policy.Terms{Rules: rules, Passthrough: document.Ceiling.Passthrough})
	}
	return bounds, err
}

// rulingOf is the ruling that the relay gives the edge after this verdict on the connection.
func rulingOf(document *control.Policy, admission *policy.Admission) *ruling {
	by := &ruling{
		set:  &set{observe: document.Observe, secrets: change.NewSecrets(document.Secrets, document.Bound)},
		kept: policy.Keep(admission.Deciding()),
	}
	if document.Ceiling != nil {
		above := policy.Keep(admission.Above)
		by.ceiling = &above
	}
	return by
}

func aboutConnection(found *policy.Admission) control.Judged {
	answer := control.Judged{
		Action: found.Action, Reason: found.Reason, Changes: []string{}, Observed: found.Observed, Ceiling: found.Ceiling,
	}
	if found.Observed {
		answer.Action = policy.Deny // the policy's own action
	}
	if found.Rule != nil {
		answer.Rule = &found.Rule.Index
	}
	return answer
}

func aboutRequest(found *policy.Verdict) control.Judged {
	answer := control.Judged{
		Action: found.Action, Reason: found.Why(), Changes: []string{}, Observed: found.Observed, Ceiling: found.Ceiling,
	}
	if found.Rule != nil {
		answer.Rule = &found.Rule.Index
		if found.Passes() || found.Asks() {
			answer.Changes = found.Rule.Changes()
		}
	}
	return answer
}

// judgeAsked decides as for a request on the wire, from its text.
func (r *ruling) judgeAsked(asked *control.Asked, to policy.Destination) (policy.Verdict, error) {
	_, rest, ok := strings.Cut(asked.URL, "://")
	if !ok {
		return policy.Verdict{}, errors.New("the URL has no scheme")
	}
	header, host := http.Header{}, ""
	for _, each := range asked.Headers {
		if strings.EqualFold(each[0], "host") {
			host = each[1]
		} else {
			header.Add(each[0], each[1])
		}
	}
	authority, target := rest, "/"
	if at := strings.IndexAny(rest, "/?#"); at >= 0 {
		authority = rest[:at]
		target, _, _ = strings.Cut(rest[at:], "#")
	}
	if strings.Contains(authority, "@") {
		return policy.Verdict{}, &policy.Fault{Status: http.StatusForbidden, Reason: "the URL has a user name"}
	}
	if !strings.HasPrefix(target, "/") {
		target = "/" + target
	}
	parts := policy.Parts{
		Scheme: asked.Scheme, Method: asked.Method, Target: target, Host: host, Header: header,
		Length: int64(len(asked.Body)), Body: func() policy.Body { return bodyOf(asked.Body, header) },
	}
	request, err := policy.NewRequest(parts, to, r.judges()...)
	if err != nil {
		return policy.Verdict{}, err
	}
	return r.judgeSent(parts, request, to, asked.Body)
}

// judgeSent makes the changes of the deciding rule, which must be possible, and has the ceiling judge the result.
func (r *ruling) judgeSent(
	parts policy.Parts, request *policy.Request, to policy.Destination, body []byte,
) (policy.Verdict, error) {
	own := policy.Judge(r.kept, request, r.observe)
	rule := passing(&own)
	if !own.Passes() && !own.Asks() || !changes(rule) {
		return r.bound(own, request), nil
	}
	target := &change.Target{
		Scheme: request.Scheme, Name: to.Name, Port: to.Port, Header: request.Header.Clone(),
		Path: request.Path.Send, Query: request.Query.Send,
	}
	var err error
	if change.NeedsBody(rule) {
		if why := bodyOf(body, request.Header).Unclear; why != "" {
			err = errors.New(why)
		}
		target.Body = body
	}
	if err = errors.Join(err, change.Apply(rule, r.secrets, target)); err != nil {
		return unsendable(own.Rule, err.Error()), nil
	}
	if r.ceiling == nil {
		return own, nil
	}
	sent, err := afterChanges(parts, target, to, *r.ceiling, func(header http.Header, _ int64) policy.Body {
		return bodyOf(body, header)
	})
	if err != nil {
		return policy.Verdict{}, err
	}
	return r.bound(own, sent), nil
}

func bodyOf(body []byte, header http.Header) policy.Body {
	return policy.Body{Bytes: body, Unclear: policy.BodyUnclear(header)}
}
