package main

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"

	"atoll/channel"
	"atoll/edge/control"
	"atoll/edge/serve"
)

// How many faults of a relay wait for a supervisor that does not read. More are not told.
const faultsMost = 64

// relays are the processes that carry connections, one after the other. The edge outlives each.
type relays struct {
	edge   *serve.Edge
	faults chan error
	newest *channel.Channel // nil: none has come yet
}

// newRelays tells the supervisor of their faults.
func newRelays(edge *serve.Edge, owner supervisor) *relays {
	made := &relays{edge: edge, faults: make(chan error, faultsMost)}
	go func() {
		for fault := range made.faults {
			// A supervisor that is gone ends this process.
			_ = owner.Send(control.Log{Op: "log", Text: "the relay: " + fault.Error()})
		}
	}()
	return made
}

// replace listens to a new relay, and not to the one before any more.
func (r *relays) replace(file *os.File) error {
	if file == nil {
		return errors.New("the message relay came without a socket")
	}
	link, err := channel.Open(file)
	if err != nil {
		return fmt.Errorf("a relay: %w", err)
	}
	if r.newest != nil {
		r.newest.Close()
	}
	r.newest = link
	go r.listen(link)
	return nil
}

// listen does what a relay says until it is gone.
func (r *relays) listen(link *channel.Channel) {
	relay := control.NewCarrier(link)
	for {
		message, file, err := control.Receive(link)
		if err != nil {
			if !errors.Is(err, io.EOF) && !errors.Is(err, net.ErrClosed) {
				r.fault(err)
			}
			break
		}
		if message.Op == "alive" && file == nil {
			// A relay that does not read is gone soon.
			_ = link.Send(control.Alive{Op: "alive", ID: message.ID})
			continue
		}
		if err := carry(r.edge, relay, message, file); err != nil {
			r.fault(err)
		}
	}
	link.Close()
	relay.Gone()
	r.edge.Lose(relay)
}

// fault is told unless too many are. A relay must not wait for a supervisor that does not read.
func (r *relays) fault(err error) {
	select {
	case r.faults <- err:
	default:
	}
}
