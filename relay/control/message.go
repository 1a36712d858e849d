// Package control has the messages between a home's supervisor and its relay. Both ends may send at any time.
package control

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"unicode"

	"atoll/channel"
	"atoll/relay/guest"
)

// Protocol is the version of the messages.
const Protocol = 3

// What asks for, of a link.
const (
	Flows   = "flows"   // the connections that are open
	Kept    = "kept"    // how many it would only reset, if it has no others than those of the content
	Owes    = "owes"    // whether something that the guest has sent has not got out yet
	Fresh   = "fresh"   // whether the guest has got something only a moment ago
	Watched = "watched" // whether data may come on a connection that is watched
	Asked   = "asked"   // whether its nameserver has a connection of the guest, or is about to have one
	Names   = "names"   // the names that the guest knows
)

// Message is a request. One with an id is answered.
type Message struct {
	Op       string `json:"op"`
	ID       int64  `json:"id"`
	Protocol int    `json:"protocol"`
	Link     string `json:"link"`
	Sandbox  string `json:"sandbox"`
	Version  int64  `json:"version"`
	What     string `json:"what"`
	Name     string `json:"name"`
	Pair     string `json:"pair"`
	Error    string `json:"error"`
}

const wordMost = 128

// Receive reads the next request, and the descriptors with it. An error ends the channel.
func Receive(from *channel.Channel) (*Message, []*os.File, error) {
	message := &Message{}
	files, err := from.Receive(message)
	if err != nil {
		return nil, nil, err
	}
	if err := message.check(); err != nil {
		channel.CloseAll(files)
		return nil, nil, err
	}
	return message, files, nil
}

// check refuses overlong words, which would be kept and sent on.
func (m *Message) check() error {
	for _, word := range []string{m.Op, m.Link, m.Sandbox, m.What, m.Pair} {
		if len(word) > wordMost {
			return fmt.Errorf("a message has a word of %d bytes", len(word))
		}
		for _, char := range word {
			if !unicode.IsPrint(char) || char == unicode.ReplacementChar {
				return errors.New("a message has a word that is not printable")
			}
		}
	}
	return nil
}

// Flow is a connection as the guest sees it, in the form in which snapshots have it.
type Flow struct {
	GuestPort uint16     `json:"guest_port"`
	Address   netip.Addr `json:"address"`
	Port      uint16     `json:"port"`
}

// FlowsOf gives connections in the form of messages.
func FlowsOf(flows []guest.Flow) []Flow {
	made := make([]Flow, len(flows))
	for i, each := range flows {
		made[i] = Flow{each.GuestPort, each.To.Addr().Unmap(), each.To.Port()}
	}
	return made
}

// Known gives connections as a guest has them.
func Known(flows []Flow) []guest.Flow {
	made := make([]guest.Flow, len(flows))
	for i, each := range flows {
		made[i] = guest.Flow{GuestPort: each.GuestPort, To: netip.AddrPortFrom(each.Address, each.Port)}
	}
	return made
}

// Name is a name that a guest knows, and the address that stands for it.
type Name struct {
	Address netip.Addr `json:"address"`
	Name    string     `json:"name"`
}
