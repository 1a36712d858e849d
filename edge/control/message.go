// Package control is the way to the edge, from the supervisor and from the relay: messages with at most one descriptor each.
package control

import (
	"encoding/json"
	"fmt"
	"os"

	"atoll/channel"
	"atoll/edge/change"
	"atoll/edge/limit"
	"atoll/edge/models"
	"atoll/edge/seen"
	"atoll/edge/traces"
	"atoll/policy"
)

// Protocol is the version of the messages.
const Protocol = 3

// Message is a message of the supervisor or the relay.
type Message struct {
	Op         string `json:"op"`
	Sandbox    string `json:"sandbox"`
	Version    int64  `json:"version"`
	Connection string `json:"connection"`
	Name       string `json:"name"`
	Address    string `json:"address"`
	Port       int    `json:"port"`
	Rules      []int  `json:"rules"`
	Ceiling    []int  `json:"ceiling"`
	ID         int64  `json:"id"`
	Error      string `json:"error"`
	Refused    bool   `json:"refused"`
	Protocol   int    `json:"protocol"`
	Pair       string `json:"pair"`   // the supervisor's name for the channel to a relay
	Config     string `json:"config"` // its name for the authority of a configuration
	Late       bool   `json:"late"`   // it cannot write what it is told

	// Of an answer to an ask.
	Ask    string  `json:"ask"`
	Digest string  `json:"digest"`
	Action string  `json:"action"`
	Reason string  `json:"reason"`
	Code   string  `json:"code"`
	ForS   float64 `json:"for_s"` // how long such requests pass; 0: once

	// Of an allotment, which has the number of the need that it answers. The many messages of a relay are short without.
	Budget     string   `json:"budget,omitempty"`
	Tokens     int64    `json:"tokens,omitempty"`
	Nanos      int64    `json:"nanos,omitempty"`
	Until      int64    `json:"until,omitempty"` // seconds since 1970; 0: for good
	Over       bool     `json:"over,omitempty"`
	LeftTokens int64    `json:"left_tokens,omitempty"`
	LeftNanos  int64    `json:"left_nanos,omitempty"`
	Limits     []string `json:"limits,omitempty"`
}

// Receive reads the next message to the edge and the descriptor with it, which is nil when there is none.
func Receive(from *channel.Channel) (*Message, *os.File, error) {
	message := &Message{}
	files, err := from.Receive(message)
	switch {
	case err != nil:
		return nil, nil, err
	case len(files) == 0:
		return message, nil, nil
	case len(files) > 1:
		channel.CloseAll(files)
		return nil, nil, fmt.Errorf("a message came with %d descriptors", len(files))
	}
	return message, files[0], nil
}

// Config is the content of the first message.
type Config struct {
	Certificate string            `json:"ca_certificate"`
	Key         change.SecretText `json:"ca_key"`
	Roots       string            `json:"roots"`
}

// Policy is the content of a message about a sandbox's policy.
type Policy struct {
	Rules       []json.RawMessage            `json:"rules"`
	Observe     bool                         `json:"observe"`
	Passthrough []string                     `json:"passthrough"`
	Proxy       *policy.Proxy                `json:"proxy"`
	Ceiling     *Ceiling                     `json:"ceiling"`
	Secrets     map[string]change.SecretText `json:"secrets"`
	Bound       map[string][]string          `json:"bound"` // hosts that alone may get a secret, by its name
	Canaries    []change.SecretText          `json:"canaries"`
	Spent       []limit.Spent                `json:"spent"`
	Models      *models.Access               `json:"models"` // nil: the sandbox has none
	Spans       bool                         `json:"spans"`  // whether its owner exports them
}

// Ceiling has the rules of a sandbox's team, which bound its own. A team without one has a nil pointer.
type Ceiling struct {
	Rules       []json.RawMessage `json:"rules"`
	Passthrough []string          `json:"passthrough"`
}

// Question is the content of a message that asks for a judgement by a policy.
type Question struct {
	Policy      *Policy      `json:"policy"` // nil: there are no rules, and everything public is allowed
	Destination policy.Asked `json:"destination"`
	Request     Asked        `json:"request"`
}

// Asked is a request that is only asked about. Of a scheme other than http and https, it is a connection without HTTP.
type Asked struct {
	Scheme  string      `json:"scheme"`
	Method  string      `json:"method"`
	URL     string      `json:"url"`
	Headers [][2]string `json:"headers"`
	Body    []byte      `json:"body"`
}

// Known tells a new owner of some sandboxes, before Welcome.
type Known struct {
	Op       string           `json:"op"`
	Policies map[string]int64 `json:"policies"` // the versions that are in force, by sandbox
}

// Welcome answers who has become the owner.
type Welcome struct {
	Op       string   `json:"op"`
	Protocol int      `json:"protocol"`
	Confined []string `json:"confined"`
	Pair     string   `json:"pair"`   // of the relay beside it; empty: none runs
	Config   string   `json:"config"` // of which authority it has a configuration; empty: none yet
	Error    string   `json:"error,omitempty"`
}

// Ready says that the edge has its configuration.
type Ready struct {
	Op string `json:"op"`
}

// Dial asks for a connection to the destination of a connection.
type Dial struct {
	Op         string `json:"op"`
	ID         int64  `json:"id"`
	Sandbox    string `json:"sandbox"`
	Connection string `json:"connection"`
	Provider   string `json:"provider,omitempty"` // where to instead, of a connection to the gateway of models
}

// Judged answers a question, or asks for the facts that are missing to answer it.
type Judged struct {
	Op       string   `json:"op"`
	ID       int64    `json:"id"`
	Action   string   `json:"action"`
	Rule     *int     `json:"rule"`
	Reason   string   `json:"reason"`
	Changes  []string `json:"changes"`
	Observed bool     `json:"observed"`
	Ceiling  bool     `json:"ceiling"`
	Resolve  bool     `json:"resolve"` // the name may be known: the question lacks its addresses
}

// Seen reports decisions.
type Seen struct {
	Op      string       `json:"op"`
	Sandbox string       `json:"sandbox"`
	Entries []seen.Entry `json:"entries"`
}

// Spans reports requests that say to which trace they belong.
type Spans struct {
	Op      string        `json:"op"`
	Sandbox string        `json:"sandbox"`
	Spans   []traces.Span `json:"spans"`
}

// Spent reports the counts of limits.
type Spent struct {
	Op      string       `json:"op"`
	Sandbox string       `json:"sandbox"`
	Spent   []limit.Told `json:"spent"`
}

// Told answers an owner that has asked for all counts of limits.
type Told struct {
	Op string `json:"op"`
}

// Unplug asks to unplug a sandbox.
type Unplug struct {
	Op      string `json:"op"`
	Sandbox string `json:"sandbox"`
	Rule    *int   `json:"rule"`
	Reason  string `json:"reason"`
}

// Alive answers a relay that asks so with the same number: this process has outlived its earlier bytes on its connections.
type Alive struct {
	Op string `json:"op"`
	ID int64  `json:"id"`
}

// Reset asks to reset a connection at both ends. An end of the stream would look as if all had been said.
type Reset struct {
	Op         string `json:"op"`
	Sandbox    string `json:"sandbox"`
	Connection string `json:"connection"`
}

// Log tells of a fault of the edge itself.
type Log struct {
	Op   string `json:"op"`
	Text string `json:"text"`
}
