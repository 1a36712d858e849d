package serve

import (
	"errors"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"

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
	rules, err := policy.ParseRules(question.Rules)
	if err != nil {
		return policy.Verdict{}, err
	}
	var asking []*policy.Rule
	for _, index := range question.Kept {
		if index < 0 || index >= len(rules) {
			return policy.Verdict{}, errors.New("there is no rule " + strconv.Itoa(index))
		}
		asking = append(asking, rules[index])
	}
	kept := policy.Keep(asking)
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
	request, err := policy.NewRequest(policy.Parts{
		Scheme: parsed.Scheme, Method: asked.Method, Target: target, Host: host, Header: header,
		Length: int64(len(asked.Body)), Body: func() policy.Body { return bodyOf(asked.Body, header) },
	}, to, kept)
	if err != nil {
		return policy.Verdict{}, err
	}
	if parsed.User != nil {
		return policy.Verdict{}, &policy.Fault{Status: http.StatusForbidden, Reason: "the URL has a user name"}
	}
	return policy.Judge(kept, request, question.Observe), nil
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
		Op: "judged", ID: id, Action: verdict.Action, Reason: verdict.Reason, Changes: []string{}, Observed: verdict.Observed,
	}
	if verdict.Rule != nil {
		answer.Rule = &verdict.Rule.Index
		answer.Changes = verdict.Rule.Changes()
	}
	return e.supervisor.Send(answer)
}
