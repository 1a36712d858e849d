package models

import (
	"bytes"
	"encoding/json"
)

const (
	// A longer answer is not kept. Its usage stands at the end.
	wholeMost = 1 << 20
	tailMost  = 32 << 10
)

// Tail reads the usage of an answer that is no stream, as it passes.
type Tail struct {
	text   []byte
	isTail bool // the beginning is gone
}

// Next takes the next piece.
func (t *Tail) Next(piece []byte) {
	t.text = append(t.text, piece...)
	if len(t.text) > wholeMost {
		t.text, t.isTail = bytes.Clone(t.text[len(t.text)-tailMost:]), true
	}
}

// Usage is what the answer has told of it. It is false if it did not.
func (t *Tail) Usage(dialect Dialect) (Usage, bool) {
	if !t.isTail {
		return UsageOf(dialect, t.text)
	}
	// In a text of JSON, a quote has a backslash before it: no text of the model's looks like this key.
	at := bytes.LastIndex(t.text, []byte(`"usage"`))
	if at < 0 {
		return Usage{}, false
	}
	_, value, isKey := bytes.Cut(t.text[at:], []byte(":"))
	var told counts
	if !isKey || json.NewDecoder(bytes.NewReader(value)).Decode(&told) != nil {
		return Usage{}, false
	}
	found := told.usage(dialect)
	return found, found.Tokens() > 0
}
