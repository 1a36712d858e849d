package neighbour

import (
	"context"
	"errors"
	"net"
	"os"
	"sync"
	"time"

	"atoll/channel"
	"atoll/edge/control"
	"atoll/relay/guest"
)

const (
	// How many messages wait for an edge that does not read.
	lettersMost = 4096
	// An edge that does not say for so long that it lives counts as dead.
	answerMost = 5 * time.Second
)

// edge is one process. Messages to it wait here, in order: who sends one holds a guest's lock, and must not wait.
type edge struct {
	link *channel.Channel
	pair string          // what the supervisor calls the channel
	ctx  context.Context // ends with it
	stop context.CancelFunc

	mu      sync.Mutex
	some    sync.Cond // something waits, or it has ended
	letters []letter
	closed  bool
	last    int64                   // question
	asked   map[int64]chan struct{} // closed when it is answered
}

// letter is a message with a descriptor, which may be nil.
type letter struct {
	message control.Message
	file    *os.File
}

func newEdge(link *channel.Channel, pair string) *edge {
	made := &edge{link: link, pair: pair, asked: map[int64]chan struct{}{}}
	made.some.L = &made.mu
	made.ctx, made.stop = context.WithCancel(context.Background())
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
	e.mu.Lock()
	e.closed = true
	for _, each := range e.letters {
		closeFile(each.file)
	}
	e.letters = nil
	e.some.Signal()
	e.mu.Unlock()
	e.link.Close()
	e.stop()
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

// lives tells whether the process does something after the call. It waits until that is clear.
func (e *edge) lives(ctx context.Context) bool {
	answered := make(chan struct{})
	e.mu.Lock()
	e.last++
	id := e.last
	e.asked[id] = answered
	e.mu.Unlock()
	defer func() {
		e.mu.Lock()
		defer e.mu.Unlock()
		delete(e.asked, id)
	}()
	if e.send(control.Message{Op: "alive", ID: id}, nil) != nil {
		return false
	}
	timer := time.NewTimer(answerMost)
	defer timer.Stop()
	select {
	case <-answered:
		return true
	case <-timer.C:
	case <-e.ctx.Done():
	case <-ctx.Done():
	}
	return false
}

// lived notes an answer.
func (e *edge) lived(id int64) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if answered, ok := e.asked[id]; ok {
		close(answered)
		delete(e.asked, id)
	}
}

// end is the relay's end of a connection that passes through an edge.
type end struct {
	*net.UnixConn
	by *edge
}

var _ guest.Mortal = (*end)(nil)

// Lives is of guest.Mortal.
func (e *end) Lives(ctx context.Context) bool { return e.by.lives(ctx) }

func closeFile(file *os.File) {
	if file != nil {
		file.Close()
	}
}
