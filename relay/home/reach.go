package home

import (
	"context"
	"errors"
	"net"
	"os"
	"slices"
	"time"

	"atoll/channel"
	"atoll/relay/control"
	"atoll/relay/dial"
)

// reachMost is how long another sandbox may take to be reached. It may have to wake first, and nobody may be there to ask.
const reachMost = 60 * time.Second

// reaching is a connection to another sandbox that the owner was asked for, or the next one will be.
type reaching struct {
	message control.Reach
	answer  chan reached
}

type reached struct {
	socket *net.TCPConn
	err    error
}

// reach asks the owner for a connection to a port of another sandbox. The caller owns the connection, which is tuned.
func (e *events) reach(ctx context.Context, link, ref string, port int) (*net.TCPConn, error) {
	made := &reaching{answer: make(chan reached, 1)}
	e.mu.Lock()
	e.last++
	made.message = control.Reach{Op: "reach", ID: e.last, Link: link, Ref: ref, Port: port}
	e.reaches[e.last] = made
	e.untold = append(e.untold, made)
	e.changed.Broadcast()
	e.mu.Unlock()
	ctx, cancel := context.WithTimeoutCause(ctx, reachMost, errors.New("nobody has connected to it within 60 s"))
	defer cancel()
	select {
	case got := <-made.answer:
		return got.socket, got.err
	case <-ctx.Done():
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.reaches, made.message.ID)
	e.untold = slices.DeleteFunc(e.untold, func(each *reaching) bool { return each == made })
	select {
	case late := <-made.answer:
		if late.socket != nil {
			late.socket.Close()
		}
	default:
	}
	return nil, context.Cause(ctx)
}

// reached passes on what the owner answered. A connection that nobody waits for any more is closed.
func (e *events) reached(id int64, refusal string, files []*os.File) error {
	var got reached
	var fault error
	if refusal != "" {
		channel.CloseAll(files)
		got.err = errors.New(control.Short(refusal, textMost))
	} else if got.socket, fault = tuned(files); fault != nil {
		got.err = fault
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	waiting, ok := e.reaches[id]
	delete(e.reaches, id)
	switch {
	case ok:
		waiting.answer <- got
	case got.socket != nil:
		got.socket.Close()
	}
	return fault
}

// tuned makes a connection of the only descriptor of a message.
func tuned(files []*os.File) (*net.TCPConn, error) {
	file, err := one(files)
	if err != nil {
		return nil, err
	}
	stream, err := channel.Stream(file)
	if err != nil {
		return nil, err
	}
	conn, ok := stream.(*net.TCPConn)
	if !ok {
		stream.Close()
		return nil, errors.New("it is not a TCP connection")
	}
	raw, err := conn.SyscallConn()
	if err == nil {
		err = dial.Tune(raw)
	}
	if err != nil {
		conn.Close()
		return nil, err
	}
	return conn, nil
}
