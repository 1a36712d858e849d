package home

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"

	"atoll/channel"
	"atoll/edge/control"
	"atoll/edge/serve"
)

// relays are the processes that carry connections, one after the other. The edge outlives each.
type relays struct {
	edge  *serve.Edge
	fault func(string)

	mu     sync.Mutex
	newest *channel.Channel // nil: none runs
	pair   string           // the supervisor's name for its channel
}

// replace listens to a new relay, and not to the one before any more.
func (r *relays) replace(file *os.File, pair string) error {
	if file == nil {
		return errors.New("the message came without a socket")
	}
	link, err := channel.Open(file)
	if err != nil {
		return fmt.Errorf("a relay: %w", err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.newest != nil {
		r.newest.Close()
	}
	r.newest, r.pair = link, pair
	go r.listen(link)
	return nil
}

// current is the name of the running relay's channel; empty if none runs.
func (r *relays) current() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.pair
}

// listen handles a relay's messages until it is gone.
func (r *relays) listen(link *channel.Channel) {
	relay := control.NewCarrier(link)
	for {
		message, file, err := control.Receive(link)
		if err != nil {
			if !errors.Is(err, io.EOF) && !errors.Is(err, net.ErrClosed) {
				r.fault("the relay: " + err.Error())
			}
			break
		}
		if err := r.carry(relay, message, file); err != nil {
			r.fault("the relay: " + err.Error())
		}
	}
	r.mu.Lock()
	if r.newest == link {
		r.newest, r.pair = nil, ""
	}
	r.mu.Unlock()
	link.Close()
	relay.Gone()
	r.edge.Lose(relay)
}

// carry handles a relay's message about a connection.
func (r *relays) carry(from *control.Carrier, message *control.Message, file *os.File) error {
	switch {
	case message.Op == "alive" && file == nil:
		// A relay that does not read is gone soon.
		_ = from.Alive(message.ID)
		return nil
	case message.Op == "dialled":
		from.Answer(message, file)
		return nil
	}
	return r.edge.Carry(from, message, file)
}
