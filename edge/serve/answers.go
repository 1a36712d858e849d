package serve

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"atoll/edge/control"
	"atoll/policy"
)

const (
	sentenceMost = 500
	grantMostS   = 366 * 24 * 3600
	codeDenied   = "ask_denied"
	codeNobody   = "ask_nobody"
	approvedOnce = "approved by a person"
)

// Answer takes the owner's answer to an ask, for exactly the requests with its digest. It returns nil if it was taken.
func (e *Edge) Answer(message *control.Message) *control.Unanswered {
	e.mu.Lock()
	found := e.sandboxes[message.Sandbox]
	e.mu.Unlock()
	err := errUnknownAsk
	if found != nil {
		err = found.asks.answer(message, time.Now())
	}
	if err == nil {
		return nil
	}
	return &control.Unanswered{Op: "unanswered", Sandbox: message.Sandbox, Ask: message.Ask, Error: err.Error()}
}

var errUnknownAsk = errors.New("there is no such ask: it was decided about, or its guest is gone")

func (a *asks) answer(message *control.Message, now time.Time) error {
	if err := checkAnswer(message); err != nil {
		return err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	var one *ask
	for _, each := range a.open {
		if each.card.Ask == message.Ask {
			one = each
		}
	}
	switch {
	case one == nil:
		return errUnknownAsk
	case message.Digest != one.card.Digest:
		return errors.New("the digest is not that of the ask")
	case message.Action == policy.Deny:
		a.decide(one, control.OutcomeDenied, func(*waiter) decision { return deniedBy(message) })
	case message.ForS > 0:
		reason := a.grants.add(one.granted, now, time.Duration(message.ForS*float64(time.Second)))
		a.decide(one, control.OutcomeAllowed, func(*waiter) decision { return decision{passes: true, reason: reason} })
	default:
		isTwin := false
		a.decide(one, control.OutcomeAllowed, func(each *waiter) decision {
			if isTwin || each.ctx.Err() != nil {
				return twin
			}
			isTwin = true
			return decision{passes: true, reason: approvedOnce}
		})
	}
	return nil
}

func checkAnswer(message *control.Message) error {
	switch {
	case message.Action != policy.Allow && message.Action != policy.Deny:
		return fmt.Errorf("there is no answer %q", message.Action)
	case message.Action == policy.Allow && message.Code != "":
		return errors.New("an answer that allows has no code")
	case message.Action == policy.Deny && message.Code != codeDenied && message.Code != codeNobody:
		return fmt.Errorf("there is no code %q", message.Code)
	case message.Action == policy.Deny && message.ForS != 0:
		return errors.New("an answer that denies has no for_s")
	case !(message.ForS >= 0 && message.ForS <= grantMostS):
		return fmt.Errorf("for_s is not 0 to %d", grantMostS)
	case utf8.RuneCountInString(message.Reason) > sentenceMost:
		return fmt.Errorf("the reason is longer than %d characters", sentenceMost)
	}
	return nil
}

// sentence is a person's text on one line, with nothing in it that a terminal obeys.
func sentence(text string) string {
	plain := strings.Map(func(char rune) rune {
		switch {
		case unicode.IsSpace(char):
			return ' '
		case !unicode.IsPrint(char):
			return -1
		}
		return char
	}, text)
	return strings.TrimSpace(plain)
}

func deniedBy(message *control.Message) decision {
	why := &refusal{
		status: http.StatusForbidden, code: codeDenied, message: "a person has denied this request",
		remedy: "do what the person says, or go on without this request; the same one is asked about again",
	}
	reason := "denied by a person"
	if message.Code == codeNobody {
		why.code, why.message = codeNobody, "nobody is there to be asked about this request"
		why.remedy = "go on without this request, or try again when somebody is there"
		reason = "nobody was there to be asked"
	}
	if said := sentence(message.Reason); said != "" {
		why.message += ": " + said
		reason += ": " + said
	}
	return decision{reason: reason, why: why}
}

func expired(deadline time.Duration) decision {
	reason := fmt.Sprintf("nobody answered within %v s", deadline.Seconds())
	return decision{reason: reason, why: &refusal{
		status: http.StatusForbidden, code: "ask_expired", message: "a person was asked about this request, and " + reason,
		remedy: "go on without this request, or try again when somebody is there",
	}}
}

var twin = decision{reason: textTwin, why: &refusal{
	status: http.StatusForbidden, code: "ask_answered_once", message: textTwin,
	remedy: "do not send the same request several times at once; a later one is asked about again",
}}

const textTwin = "an equal request was approved once, and was this one's twin"

const textGone = "the guest hung up before somebody answered"

var isGone = decision{reason: textGone, why: &refusal{
	status: http.StatusForbidden, code: "ask_gone", message: textGone,
}}
