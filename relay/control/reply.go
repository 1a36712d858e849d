package control

import (
	"encoding/json"
	"os"

	"atoll/channel"
	"atoll/edge/seen"
)

// Answer answers a request. If its content does not fit into a message, it comes in a sealed memfd instead.
type Answer struct {
	Op      string          `json:"op"`
	ID      int64           `json:"id"`
	Error   string          `json:"error,omitempty"` // empty: it is done
	Content json.RawMessage `json:"content,omitempty"`
}

const (
	contentMost = 32 << 10
	errorMost   = 1024
)

// Reply answers a request with the outcome of it. A content of nil is none. Descriptors come with a short content alone.
func Reply(to *channel.Channel, id int64, content any, failure error, files ...*os.File) error {
	answer := Answer{Op: "answer", ID: id}
	if failure != nil {
		answer.Error = Short(failure.Error(), errorMost)
		return to.Send(answer)
	}
	if content == nil {
		return to.Send(answer)
	}
	text, err := json.Marshal(content)
	if err != nil {
		return err
	}
	if len(text) <= contentMost {
		answer.Content = text
		return to.Send(answer, files...)
	}
	file, err := channel.Sealed(json.RawMessage(text))
	if err != nil {
		return err
	}
	defer file.Close()
	return to.Send(answer, file)
}

// Short is a text, cut to at most this many bytes.
func Short(text string, most int) string {
	if len(text) <= most {
		return text
	}
	for most > 0 && text[most]&0xc0 == 0x80 { // within a character
		most--
	}
	return text[:most]
}

// Hello is the content of the answer to a supervisor that takes the relay over.
type Hello struct {
	Protocol int      `json:"protocol"`
	Confined []string `json:"confined"`
	Links    []string `json:"links"`
	Pair     string   `json:"pair"` // of the edge beside it; empty if none runs
}

// Given is the state of a link whose sockets the answer brings: for TCP, DNS datagrams, and DNS streams.
type Given struct {
	Held bool `json:"held"`
	Cut  bool `json:"cut"`
}

// Told reports the decisions about a guest.
type Told struct {
	Op      string       `json:"op"`
	Link    string       `json:"link"`
	Entries []seen.Entry `json:"entries"`
}

// Unplug tells that a rule has cut a guest off.
type Unplug struct {
	Op     string `json:"op"`
	Link   string `json:"link"`
	Reason string `json:"reason"`
}

// Wake tells that data has come for a guest that sleeps, and from where.
type Wake struct {
	Op   string `json:"op"`
	Link string `json:"link"`
	From string `json:"from"`
}

// Reach asks for a connection to another sandbox, which a message "reached" answers.
type Reach struct {
	Op   string `json:"op"`
	ID   int64  `json:"id"`
	Link string `json:"link"`
	Ref  string `json:"ref"`
	Port int    `json:"port"`
}

// Parted tells that the channel to the process that judges requests is gone.
type Parted struct {
	Op   string `json:"op"`
	Pair string `json:"pair"`
}

// Log tells of a fault of the relay itself.
type Log struct {
	Op   string `json:"op"`
	Text string `json:"text"`
}
