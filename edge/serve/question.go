package serve

import (
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"

	"atoll/edge/change"
	"atoll/edge/channel"
	"atoll/edge/policy"
)

// judge answers what a request would get, by the code that judges on the wire.
func (e *Edge) judge(message *channel.Message, file *os.File) error {
	var question channel.Question
	if err := channel.Content(file, &question); err != nil {
		return err
	}
	verdict, err := judgeQuestion(&question)
	var fault *policy.Fault
	switch {
	case errors.As(err, &fault):
		verdict = policy.Verdict{Action: policy.Deny, Reason: fault.Reason}
	case err != nil:
		verdict = policy.Verdict{Action: policy.Deny, Reason: "the question cannot be judged: " + err.Error()}
	}
	return e.answerQuestion(message.ID, verdict)
}

func judgeQuestion(question *channel.Question) (policy.Verdict, error) {
	by, err := rulingOf(question)
	if err != nil {
		return policy.Verdict{}, err
	}
	defer by.secrets.Wipe()
	asked := question.Request
	parsed, err := url.Parse(asked.URL)
	if err != nil || parsed.Host == "" || parsed.Scheme != "http" && parsed.Scheme != "https" {
		return policy.Verdict{}, errors.New("the URL is not one of http or https")
	}
	to, err := destinationOf(parsed)
	if err != nil {
		return policy.Verdict{}, err
	}
	header := http.Header{}
	host := parsed.Host
	for _, each := range asked.Headers {
		if strings.EqualFold(each[0], "host") {
			host = each[1]
		} else {
			header.Add(each[0], each[1])
		}
	}
	_, rest, _ := strings.Cut(asked.URL, "://")
	target := "/"
	if at := strings.IndexAny(rest, "/?#"); at >= 0 {
		target, _, _ = strings.Cut(rest[at:], "#")
	}
	if !strings.HasPrefix(target, "/") {
		target = "/" + target
	}
	parts := policy.Parts{
		Scheme: parsed.Scheme, Method: asked.Method, Target: target, Host: host, Header: header,
		Length: int64(len(asked.Body)), Body: func() policy.Body { return bodyOf(asked.Body, header) },
	}
	request, err := policy.NewRequest(parts, to, by.judges()...)
	if err != nil {
		return policy.Verdict{}, err
	}
	if parsed.User != nil {
		return policy.Verdict{}, &policy.Fault{Status: http.StatusForbidden, Reason: "the URL has a user name"}
	}
	return by.judgeAsked(parts, request, to, asked.Body)
}

func rulingOf(question *channel.Question) (*ruling, error) {
	kept, err := chosen(question.Rules, question.Kept)
	if err != nil {
		return nil, err
	}
	by := &ruling{set: &set{observe: question.Observe, secrets: change.NewSecrets(question.Secrets, question.Bound)}, kept: kept}
	if question.Ceiling != nil {
		above, err := chosen(question.Ceiling.Rules, question.KeptCeiling)
		if err != nil {
			return nil, err
		}
		by.ceiling = &above
	}
	return by, nil
}

func chosen(texts []json.RawMessage, indices []int) (policy.Kept, error) {
	rules, err := policy.ParseRules(texts)
	if err != nil {
		return policy.Kept{}, err
	}
	var asking []*policy.Rule
	for _, index := range indices {
		if index < 0 || index >= len(rules) {
			return policy.Kept{}, errors.New("there is no rule " + strconv.Itoa(index))
		}
		asking = append(asking, rules[index])
	}
	return policy.Keep(asking), nil
}

// judgeAsked decides as for a request on the wire: the rule's changes must be possible, and the ceiling judges what they make.
func (r *ruling) judgeAsked(
	parts policy.Parts, request *policy.Request, to policy.Destination, body []byte,
) (policy.Verdict, error) {
	own := policy.Judge(r.kept, request, r.observe)
	rule := passing(&own)
	if !own.Passes() || !changes(rule) {
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

func destinationOf(parsed *url.URL) (policy.Destination, error) {
	name, err := policy.CanonicalHost(parsed.Hostname())
	to := policy.Destination{Name: name, Port: 443}
	if parsed.Scheme == "http" {
		to.Port = 80
	}
	if text := parsed.Port(); err == nil && text != "" {
		to.Port, err = strconv.Atoi(text)
	}
	return to, err
}

func (e *Edge) answerQuestion(id int64, verdict policy.Verdict) error {
	answer := channel.Judged{
		Op: "judged", ID: id, Action: verdict.Action, Reason: verdict.Why(), Changes: []string{}, Observed: verdict.Observed,
		Ceiling: verdict.Ceiling,
	}
	if verdict.Rule != nil {
		answer.Rule = &verdict.Rule.Index
		if verdict.Passes() {
			answer.Changes = verdict.Rule.Changes()
		}
	}
	return e.supervisor.Send(answer)
}
