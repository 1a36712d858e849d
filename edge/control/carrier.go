package control

import (
	"context"
	"errors"
	"net"
	"os"
	"sync"
	"time"

	"atoll/channel"
)

const dialMost = 15 * time.Second

// RefusedError says that the carrier does not connect there.
type RefusedError struct{ Reason string }

// Error is the carrier's reason.
func (e *RefusedError) Error() string { return e.Reason }

var errCarrierGone = errors.New("the process that connects has ended")

// Carrier hands connections of guests to the edge. The edge asks it to connect and to reset for those.
type Carrier struct {
	link *channel.Channel

	mu      sync.Mutex
	last    int64
	waiting map[int64]chan dialled // nil: it is gone
}

type dialled struct {
	socket net.Conn
	err    error
}

// NewCarrier uses a channel that somebody else listens to.
func NewCarrier(link *channel.Channel) *Carrier {
	return &Carrier{link: link, waiting: map[int64]chan dialled{}}
}

// Reset asks to reset a connection of a sandbox.
func (c *Carrier) Reset(sandbox, connection string) error {
	return c.link.Send(Reset{Op: "reset", Sandbox: sandbox, Connection: connection})
}

// Alive answers a question of the carrier.
func (c *Carrier) Alive(id int64) error { return c.link.Send(Alive{Op: "alive", ID: id}) }

// Dial asks for a connection to where a connection of a sandbox goes, or to a provider of models. It waits at most 15 s.
func (c *Carrier) Dial(ctx context.Context, sandbox, connection, provider string) (net.Conn, error) {
	answer := make(chan dialled, 1)
	c.mu.Lock()
	if c.waiting == nil {
		c.mu.Unlock()
		return nil, errCarrierGone
	}
	c.last++
	id := c.last
	c.waiting[id] = answer
	c.mu.Unlock()
	defer c.leave(id, answer)
	asked := Dial{Op: "dial", ID: id, Sandbox: sandbox, Connection: connection, Provider: provider}
	if err := c.link.Send(asked); err != nil {
		return nil, err
	}
	timer := time.NewTimer(dialMost)
	defer timer.Stop()
	select {
	case got := <-answer:
		return got.socket, got.err
	case <-timer.C:
		return nil, errors.New("connecting took longer than 15 s")
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// leave waits for an answer no more. A socket that came too late is closed.
func (c *Carrier) leave(id int64, answer <-chan dialled) {
	c.mu.Lock()
	delete(c.waiting, id)
	c.mu.Unlock()
	select {
	case late := <-answer:
		if late.socket != nil {
			late.socket.Close()
		}
	default:
	}
}

// Answer passes on the carrier's answer. A socket that nobody waits for any more is closed.
func (c *Carrier) Answer(message *Message, file *os.File) {
	var got dialled
	switch {
	case message.Error != "" && message.Refused:
		got.err = &RefusedError{message.Error}
	case message.Error != "":
		got.err = errors.New(message.Error)
	default:
		got.socket, got.err = channel.Stream(file)
		file = nil
	}
	if file != nil {
		file.Close()
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if waiting, ok := c.waiting[message.ID]; ok {
		delete(c.waiting, message.ID)
		waiting <- got
	} else if got.socket != nil {
		got.socket.Close()
	}
}

// Gone says that the carrier answers no more.
func (c *Carrier) Gone() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, waiting := range c.waiting {
		waiting <- dialled{err: errCarrierGone}
	}
	c.waiting = nil
}
