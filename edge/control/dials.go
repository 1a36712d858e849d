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

// RefusedError says that the supervisor does not connect there.
type RefusedError struct{ Reason string }

// Error is the supervisor's reason.
func (e *RefusedError) Error() string { return e.Reason }

// Dials are the connections that the supervisor was asked for and has not given yet.
type Dials struct {
	send func(any) error

	mu      sync.Mutex
	last    int64
	waiting map[int64]chan dialled
}

type dialled struct {
	socket net.Conn
	err    error
}

// NewDials makes an empty table that asks by send.
func NewDials(send func(any) error) *Dials {
	return &Dials{send: send, waiting: map[int64]chan dialled{}}
}

// Dial asks for a connection to where a connection of a sandbox goes. It waits at most 15 s.
func (d *Dials) Dial(ctx context.Context, sandbox, connection string) (net.Conn, error) {
	answer := make(chan dialled, 1)
	d.mu.Lock()
	d.last++
	id := d.last
	d.waiting[id] = answer
	d.mu.Unlock()
	defer func() {
		d.mu.Lock()
		delete(d.waiting, id)
		d.mu.Unlock()
		select {
		case late := <-answer:
			if late.socket != nil {
				late.socket.Close()
			}
		default:
		}
	}()
	if err := d.send(Dial{Op: "dial", ID: id, Sandbox: sandbox, Connection: connection}); err != nil {
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

// Answer passes on what the supervisor answered. A socket that nobody waits for any more is closed.
func (d *Dials) Answer(message *Message, file *os.File) {
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
	d.mu.Lock()
	defer d.mu.Unlock()
	if waiting, ok := d.waiting[message.ID]; ok {
		delete(d.waiting, message.ID)
		waiting <- got
	} else if got.socket != nil {
		got.socket.Close()
	}
}
