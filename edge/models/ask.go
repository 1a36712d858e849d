package models

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
)

// Ask is a guest's request to a model.
type Ask struct {
	Kind   Kind
	Model  string
	Stream bool
	// Most is how many tokens of output it wants at most, over all of its answers; 0: it does not say.
	Most int64
	// Adds says that usage has to be asked for, and taken out of the answer again.
	Adds bool

	answers int64 // how many it wants
	bytes   int   // of the body
	body    *object
}

const answersMost = 1024

var errNoModel = errors.New("the body names no model")

// ReadAsk reads the body of a request.
func ReadAsk(kind Kind, body []byte) (*Ask, error) {
	parsed, err := parseObject(body)
	if err != nil {
		return nil, err
	}
	made := &Ask{Kind: kind, body: parsed, bytes: len(body), answers: 1}
	if err := made.text("model", &made.Model); err != nil {
		return nil, err
	}
	if made.Model == "" {
		return nil, errNoModel
	}
	if kind == Unknown || kind == Count {
		return made, nil
	}
	return made, errors.Join(made.readBounds(), made.readStream())
}

func (a *Ask) text(key string, into *string) error {
	if raw := a.body.get(key); raw != nil && json.Unmarshal(raw, into) != nil {
		return fmt.Errorf("%s is no text", key)
	}
	return nil
}

func (a *Ask) number(key string) (int64, error) {
	raw := a.body.get(key)
	if raw == nil || string(raw) == "null" {
		return 0, nil
	}
	var value int64
	if json.Unmarshal(raw, &value) != nil || value < 1 || value > most {
		return 0, fmt.Errorf("%s is no whole number above 0", key)
	}
	return value, nil
}

// bounds are the members that bound the output.
func (k Kind) bounds() []string {
	switch k {
	case Chat:
		return []string{"max_completion_tokens", "max_tokens"}
	case Responses:
		return []string{"max_output_tokens"}
	case Messages:
		return []string{"max_tokens"}
	}
	return nil
}

func (a *Ask) readBounds() error {
	for _, key := range a.Kind.bounds() {
		value, err := a.number(key)
		if err != nil {
			return err
		}
		a.Most = max(a.Most, value)
	}
	if a.Kind != Chat {
		return nil
	}
	count, err := a.number("n")
	if err != nil {
		return err
	}
	if count > answersMost {
		return fmt.Errorf("n is above %d", answersMost)
	}
	a.answers = max(count, 1)
	a.Most = times(a.Most, a.answers)
	return nil
}

func (a *Ask) readStream() error {
	if raw := a.body.get("stream"); raw != nil && json.Unmarshal(raw, &a.Stream) != nil {
		return errors.New("stream is neither true nor false")
	}
	if a.Kind == Responses && string(a.body.get("background")) == "true" {
		return errors.New("background is true: the gateway cannot know what such a request uses")
	}
	if a.Kind != Chat || !a.Stream {
		return nil
	}
	var options struct {
		Usage bool `json:"include_usage"`
	}
	if raw := a.body.get("stream_options"); raw != nil && json.Unmarshal(raw, &options) != nil {
		return errors.New("stream_options is no object")
	}
	a.Adds = !options.Usage
	return nil
}

// InputMost is how many tokens of input it has: there are seldom more than one for two bytes.
func (a *Ask) InputMost() int64 { return int64(a.bytes+1) / 2 }

// Forget drops the body. It is not sent any more.
func (a *Ask) Forget() { a.body = nil }

// HasOutput tells whether its output has to be bounded.
func (a *Ask) HasOutput() bool { return a.Kind.bounds() != nil }

// Body is the request as it is sent: to this model, with this many tokens of output at most, where it says nothing of them
// itself; 0: no bound. All other bytes are the guest's.
func (a *Ask) Body(model string, bound int64) (io.Reader, int64) {
	changed := edits{}
	if model != a.Model {
		changed["model"] = quoted(model)
	}
	if bound > 0 && a.Most == 0 && a.Kind != Messages {
		changed[a.Kind.bounds()[0]] = strconv.FormatInt(max(bound/a.answers, 1), 10)
	}
	if a.Adds {
		changed["stream_options"] = a.options()
	}
	return a.body.edited(changed, "max_completion_tokens", "max_output_tokens", "stream_options")
}

// options are the guest's for streams, with the wish for usage.
func (a *Ask) options() string {
	const wish = `"include_usage":true`
	text := a.body.get("stream_options")
	if text == nil || string(text) == "null" {
		return "{" + wish + "}"
	}
	inner, err := parseObject(text)
	if err != nil {
		return "{" + wish + "}"
	}
	edited, _ := inner.edited(edits{"include_usage": "true"}, "include_usage")
	made, err := io.ReadAll(edited)
	if err != nil {
		return "{" + wish + "}"
	}
	return string(made)
}

func quoted(text string) string {
	made, err := json.Marshal(text)
	if err != nil {
		return `""`
	}
	return string(made)
}
