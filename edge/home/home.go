// Package home is the edge of one home as others see it: who may talk to it, who owns it, and how long it stays.
package home

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"net"
	"os"
	"sync"
	"time"

	"atoll/channel"
	"atoll/edge/control"
	"atoll/edge/serve"
)

// Home goes on without an owner as long as a process runs that stands for one.
type Home struct {
	name     string // of this process, which no other one has
	user     int    // may connect, beside root
	confined []string
	faults   *faults
	ctx      context.Context // ends with it
	stop     context.CancelFunc
	served   sync.WaitGroup

	// Held while a message of the owner is handled, so that none of an earlier one follows.
	handling sync.Mutex
	edge     *serve.Edge // nil: there is no configuration yet
	relays   *relays
	config   string // the owner's name for the configuration

	mu       sync.Mutex
	peers    map[*peer]struct{}
	owner    *peer    // nil: there is none
	guardian *os.File // a process: without an owner the home stays as long as it runs. nil: not at all
	listener *net.UnixListener
	closed   bool
	failed   error // why it ends, if not as it should
}

// New makes a home that this user and root may talk to. Confined says how this process is confined.
func New(user int, confined []string) *Home {
	made := &Home{name: randomName(), user: user, confined: confined, faults: newFaults(), peers: map[*peer]struct{}{}}
	made.ctx, made.stop = context.WithCancel(context.Background())
	return made
}

// randomName is one that no other process has.
func randomName() string {
	var bytes [8]byte
	_, _ = rand.Read(bytes[:]) // it never fails
	return hex.EncodeToString(bytes[:])
}

var errClosed = errors.New("the edge is ending")

// configure makes the edge. A later owner may trust other servers, but who wants another authority ends this process.
func (h *Home) configure(message *control.Message, file *os.File) error {
	var config control.Config
	if err := channel.Content(file, &config); err != nil {
		return err
	}
	if h.edge != nil {
		clear(config.Key)
		if message.Config != h.config {
			return errors.New("it is of another authority")
		}
		return h.edge.Trust(config.Roots)
	}
	made, err := serve.New(config)
	if err != nil {
		return err
	}
	h.edge, h.config = made, message.Config
	h.relays = &relays{edge: made, fault: h.faults.note}
	h.served.Go(func() {
		if err := made.Run(h.ctx); h.ctx.Err() == nil {
			h.fail(err)
		}
	})
	return nil
}

// stay has the home stay without an owner as long as the process of this descriptor runs, and not that of one before.
func (h *Home) stay(process *os.File) error {
	if process == nil {
		return errors.New("the message came without a process")
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		process.Close()
		return errClosed
	}
	if h.guardian != nil {
		h.guardian.Close()
	}
	h.guardian = process
	h.served.Go(func() {
		err := channel.Await(process)
		h.mu.Lock()
		defer h.mu.Unlock()
		if h.guardian != process {
			return // another one has come, or the home ends
		}
		h.guardian = nil
		process.Close()
		if err != nil {
			h.faults.note("the edge ends with its supervisor: " + err.Error())
		}
		h.endAlone()
	})
	return nil
}

// endAlone ends the home if it has neither an owner nor a process that stands for one. The lock is held.
func (h *Home) endAlone() {
	if h.owner == nil && h.guardian == nil {
		h.end()
	}
}

// fail ends the home for a reason.
func (h *Home) fail(why error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.failed == nil {
		h.failed = why
	}
	h.end()
}

// end has Serve return. The lock is held.
func (h *Home) end() {
	h.closed = true
	if h.guardian != nil {
		h.guardian.Close()
		h.guardian = nil
	}
	h.listener.Close()
}

// close ends all talks. The connections of guests end with the process.
func (h *Home) close() error {
	h.mu.Lock()
	h.end()
	for each := range h.peers {
		each.link.Close()
	}
	h.mu.Unlock()
	h.stop()
	h.served.Wait()
	return h.failed
}

// The first owner comes within this time.
const firstMost = 10 * time.Second
