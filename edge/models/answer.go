package models

import (
	"bytes"
	"encoding/json"
)

// counts is a usage as providers write it. Numbers that are none are taken for 0.
type counts struct {
	Prompt       count `json:"prompt_tokens"`     // OpenAI's chat and embeddings, with those from a cache
	Completion   count `json:"completion_tokens"` // OpenAI's chat
	Input        count `json:"input_tokens"`      // OpenAI's responses, with those from a cache; Anthropic's, without
	Output       count `json:"output_tokens"`
	PromptParts  parts `json:"prompt_tokens_details"`
	InputParts   parts `json:"input_tokens_details"`
	CacheRead    count `json:"cache_read_input_tokens"`     // Anthropic's
	CacheCreated count `json:"cache_creation_input_tokens"` // Anthropic's
	Created      parts `json:"cache_creation"`              // Anthropic's
}

type parts struct {
	Cached count `json:"cached_tokens"`
	Hour   count `json:"ephemeral_1h_input_tokens"`
}

// UnmarshalJSON takes anything but an object for nothing.
func (p *parts) UnmarshalJSON(text []byte) error {
	type plain parts
	_ = json.Unmarshal(text, (*plain)(p)) // what cannot be read is 0
	return nil
}

type count int64

// UnmarshalJSON takes anything but a sensible number for 0.
func (c *count) UnmarshalJSON(text []byte) error {
	var value float64
	if json.Unmarshal(text, &value) != nil || !(value >= 0 && value <= most) {
		value = 0
	}
	*c = count(value)
	return nil
}

// usage brings a provider's numbers into the one form.
func (c *counts) usage(dialect Dialect) Usage {
	if dialect == Anthropic {
		return Usage{
			Input: int64(c.Input), CacheRead: int64(c.CacheRead), CacheWrite: int64(c.CacheCreated), Output: int64(c.Output),
			hour: int64(c.Created.Hour),
		}
	}
	input := max(int64(c.Prompt), int64(c.Input))
	cached := min(max(int64(c.PromptParts.Cached), int64(c.InputParts.Cached)), input)
	return Usage{Input: input - cached, CacheRead: cached, Output: max(int64(c.Completion), int64(c.Output))}
}

// envelope is an answer, or an event of a stream, as far as it is about usage.
type envelope struct {
	Usage    *counts         `json:"usage"`
	Choices  json.RawMessage `json:"choices"`
	Response *struct {
		Usage *counts `json:"usage"`
	} `json:"response"` // in OpenAI's events of a response
	Message *struct {
		Usage *counts `json:"usage"`
	} `json:"message"` // in Anthropic's first event
}

// UsageOf reads the usage of a whole answer. It is false if there is none.
func UsageOf(dialect Dialect, body []byte) (Usage, bool) {
	var found envelope
	_ = json.Unmarshal(body, &found) // what cannot be read is not there
	return found.used(dialect)
}

// used is the usage that is told. It is false if there is none, or none that can be read.
func (e *envelope) used(dialect Dialect) (Usage, bool) {
	told := e.Usage
	switch {
	case told != nil:
	case e.Response != nil:
		told = e.Response.Usage
	case e.Message != nil:
		told = e.Message.Usage
	}
	if told == nil {
		return Usage{}, false
	}
	found := told.usage(dialect)
	return found, found.Tokens() > 0
}

// isOnlyUsage tells whether an event of OpenAI's chat is the one that comes only if usage was asked for.
func (e *envelope) isOnlyUsage() bool {
	return e.Usage != nil && string(bytes.Join(bytes.Fields(e.Choices), nil)) == "[]"
}
