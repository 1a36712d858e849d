package neighbour

import (
	"context"
	"errors"
	"net"
	"os"
	"sync"

	"atoll/channel"
	"atoll/edge/control"
	"atoll/relay/guest"
)

// How many messages wait for an edge that does not read.
const lettersMost = 4096

// edge is one process. Messages to it wait here, in order: who sends one holds a guest's lock, and must not wait.
type edge struct {
	link *channel.Channel
	ctx  context.Context // ends with it
	end  context.CancelFunc

	mu      sync.Mutex
	some    sync.Cond // something waits, or it has ended
	letters []letter
	closed  bool
}

// letter is a message with a descriptor, which may be nil.
type letter struct {
	message control.Message
	file    *os.File
}

func newEdge(link *channel.Channel) *edge {
	made := &edge{link: link}
	made.some.L = &made.mu
	made.ctx, made.end = context.WithCancel(context.Background())
	go made.write()
	return made
}

// send has a message sent. It owns the descriptor.
func (e *edge) send(message control.Message, file *os.File) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed || len(e.letters) >= lettersMost {
		closeFile(file)
		return errors.New("the process that judges requests takes no message")
	}
	e.letters = append(e.letters, letter{message, file})
	e.some.Signal()
	return nil
}

// write sends what waits, until the edge has ended.
func (e *edge) write() {
	for {
		next, ok := e.next()
		if !ok {
			return
		}
		var err error
		if next.file == nil {
			err = e.link.Send(next.message)
		} else {
			err = e.link.Send(next.message, next.file)
			next.file.Close()
		}
		if err != nil {
			e.link.Close() // who listens notices
		}
	}
}

func (e *edge) next() (letter, bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for len(e.letters) == 0 && !e.closed {
		e.some.Wait()
	}
	if e.closed {
		return letter{}, false
	}
	first := e.letters[0]
	e.letters = e.letters[1:]
	return first, true
}

// close ends it. What waits is not sent any more.
func (e *edge) close() {
	e.end()
	e.link.Close()
	e.mu.Lock()
	defer e.mu.Unlock()
	e.closed = true
	for _, each := range e.letters {
		closeFile(each.file)
	}
	e.letters = nil
	e.some.Signal()
}

// answer gives the edge the connection that it asked for, or says why there is none. It owns the connection.
func (e *edge) answer(id int64, made *net.TCPConn, err error) {
	message := control.Message{Op: "dialled", ID: id}
	var file *os.File
	if err == nil {
		file, err = made.File()
		made.Close()
	}
	if err != nil {
		var refused *guest.RefusedError
		message.Error, message.Refused = err.Error(), errors.As(err, &refused)
	}
	_ = e.send(message, file) // only the process that asked gets it, and that may be gone
}

func closeFile(file *os.File) {
	if file != nil {
		file.Close()
	}
}
