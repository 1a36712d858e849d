// Package home is the relay of one home: the links of its sandboxes, and the channel to its supervisor.
package home

import (
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"atoll/channel"
)

// Parts are the parts of a home.
type Parts struct {
	Kernel Kernel
	Edges  Edges // nil: nothing judges requests, and what needs it is refused
	// Confined says how this process is confined.
	Confined []string
	// User may connect, beside root.
	User int
	// Original gives where a connection went before it was redirected; nil asks the kernel.
	Original func(*net.TCPConn) (netip.AddrPort, error)
}

// Home has the links of all sandboxes of a home. The links go on without a supervisor.
type Home struct {
	parts   Parts
	outside *outside
	// how many names are being resolved for those who ask about policies
	resolving atomic.Int64
	events    *events
	served    sync.WaitGroup

	mu        sync.Mutex
	links     map[string]*Link
	peers     map[*peer]struct{}
	owner     *peer       // nil: there is none
	guardian  *os.File    // a process: without an owner the home stays as long as it runs. nil: not at all
	first     *time.Timer // ends the home if no owner comes
	listeners []*net.UnixListener
	closed    bool
}

// New makes one without links.
func New(parts Parts) *Home {
	made := &Home{
		parts: parts, events: newEvents(), links: map[string]*Link{}, peers: map[*peer]struct{}{},
	}
	made.outside = newOutside(parts.Kernel, made.events.log)
	if parts.Edges != nil {
		parts.Edges.OnLost(made.events.part)
	}
	return made
}

var errClosed = errors.New("the relay is ending")

// stay has the home stay without an owner as long as the process of this descriptor runs, and not that of one before.
func (h *Home) stay(files []*os.File) error {
	process, err := one(files)
	if err != nil {
		return err
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
			h.events.log("the relay ends with its supervisor: " + err.Error())
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

// End has Serve return. It does not wait for that.
func (h *Home) End() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.end()
}

// end is the same. The lock is held.
func (h *Home) end() {
	h.closed = true
	if h.guardian != nil {
		h.guardian.Close()
		h.guardian = nil
	}
	for _, each := range h.listeners {
		each.Close()
	}
}

// close resets every connection of every guest, and ends all links and all talks.
func (h *Home) close() {
	h.End()
	h.events.close()
	h.mu.Lock()
	links := slices.Collect(maps.Values(h.links))
	clear(h.links)
	for each := range h.peers {
		each.Close()
	}
	h.mu.Unlock()
	var closing sync.WaitGroup
	for _, each := range links {
		closing.Go(each.close)
	}
	closing.Wait()
	h.served.Wait()
}

// add opens a link of these descriptors.
func (h *Home) add(id string, files []*os.File) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	var err error
	switch {
	case h.closed:
		err = errClosed
	case id == "":
		err = errors.New("a link has no id")
	case h.links[id] != nil:
		err = fmt.Errorf("there is a link %q already", id)
	}
	if err != nil {
		channel.CloseAll(files)
		return err
	}
	made, err := h.open(id, files)
	if err == nil {
		h.links[id] = made
	}
	return err
}

// link is one that was opened.
func (h *Home) link(id string) (*Link, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if found := h.links[id]; found != nil {
		return found, nil
	}
	return nil, fmt.Errorf("there is no link %q", id)
}

// remove closes a link. One that is gone already is none.
func (h *Home) remove(id string) error {
	found, err := h.link(id)
	if err != nil {
		return err
	}
	h.mu.Lock()
	isThere := h.links[id] == found
	delete(h.links, id)
	h.mu.Unlock()
	if isThere {
		found.close()
	}
	return nil
}
