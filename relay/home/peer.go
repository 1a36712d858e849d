package home

import (
	"errors"
	"fmt"
	"maps"
	"net"
	"os"
	"slices"
	"time"

	"atoll/channel"
	"atoll/relay/control"
)

const (
	peersMost = 64
	// The first owner comes within this time.
	firstMost = 10 * time.Second
)

// peer is who has connected to the relay, and may ask. The owner is told events as well.
type peer struct {
	*channel.Channel
	home  *Home
	isBad bool // it speaks another version
}

// Serve talks to those who connect until End, or until one of them ends the relay. Then everything is closed.
func (h *Home) Serve(listener *net.UnixListener) error {
	h.mu.Lock()
	h.listeners = append(h.listeners, listener)
	h.first = time.AfterFunc(firstMost, func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.endAlone()
	})
	if h.closed {
		listener.Close()
	}
	h.mu.Unlock()
	defer h.close()
	for {
		conn, err := channel.Accept(listener)
		switch {
		case errors.Is(err, net.ErrClosed):
			return nil
		case err != nil:
			return fmt.Errorf("accept: %w", err)
		default:
			h.welcome(conn)
		}
	}
}

func (h *Home) welcome(conn *net.UnixConn) {
	if err := channel.MayTalk(conn, h.parts.User, "relay"); err != nil {
		h.events.log(err.Error())
		conn.Close()
		return
	}
	made := &peer{Channel: channel.New(conn), home: h}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed || len(h.peers) >= peersMost {
		conn.Close()
		return
	}
	h.peers[made] = struct{}{}
	h.served.Go(made.listen)
}

// listen serves a peer's requests until it is gone.
func (p *peer) listen() {
	defer p.leave()
	for {
		message, files, err := control.Receive(p.Channel)
		if err != nil {
			// A peer that leaves shows as an end.
			return
		}
		if p.handleLater(message, files) {
			continue
		}
		content, err := p.handle(message, files)
		switch {
		case message.ID != 0 && message.Op != "reached": // which is an answer itself
			if control.Reply(p.Channel, message.ID, content, err) != nil {
				return
			}
		case err != nil:
			p.home.events.log(fmt.Sprintf("%s %s: %v", message.Op, message.Link, err))
		}
		switch {
		case p.isBad:
			return
		case message.Op == "hello" && err == nil:
			p.tell()
		case message.Op == "end" && err == nil:
			p.home.End()
			return
		}
	}
}

// handleLater handles requests with another way of answering, and tells whether this was one.
func (p *peer) handleLater(message *control.Message, files []*os.File) bool {
	h := p.home
	switch {
	case message.Op == "give":
		// A peer that does not get it is gone.
		_ = p.give(message)
	case message.Op == "resolve":
		h.served.Go(func() { p.resolve(message) })
	case message.Op == "tell" && p.isOwner():
		h.mu.Lock()
		links := slices.Collect(maps.Values(h.links))
		h.mu.Unlock()
		h.events.tellAll(message.ID, links)
	default:
		return false
	}
	channel.CloseAll(files)
	return true
}

func (p *peer) leave() {
	p.Close()
	h := p.home
	h.mu.Lock()
	delete(h.peers, p)
	if h.owner == p {
		h.owner = nil
		h.events.disown()
		h.endAlone()
	}
	h.mu.Unlock()
}

// hello makes a peer the owner, in place of the one before, who must not act on links that are not its own any more.
func (p *peer) hello(protocol int) (*control.Hello, error) {
	if protocol != control.Protocol {
		p.isBad = true
		return nil, fmt.Errorf("the relay speaks protocol %d, and not %d", control.Protocol, protocol)
	}
	h := p.home
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		return nil, errClosed
	}
	if h.owner != nil && h.owner != p {
		h.owner.Close()
	}
	h.owner = p
	if h.first != nil {
		h.first.Stop()
	}
	h.events.disown()
	links := slices.Sorted(maps.Keys(h.links))
	said := &control.Hello{Protocol: control.Protocol, Confined: h.parts.Confined, Links: links}
	if h.parts.Edges != nil {
		said.Pair = h.parts.Edges.Pair()
	}
	return said, nil
}

// tell has an owner told events from now on, if it is still the owner. Its answer to hello was first.
func (p *peer) tell() {
	h := p.home
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.owner != p || h.closed {
		return
	}
	number := h.events.own(slices.Collect(maps.Values(h.links)))
	h.served.Go(func() {
		for {
			messages := h.events.next(number)
			if messages == nil {
				return
			}
			for i, each := range messages {
				if p.Send(each) != nil {
					h.events.restore(messages[i:])
					p.Close() // what it was not told, the next owner is
					return
				}
			}
		}
	})
}

func (p *peer) isOwner() bool {
	p.home.mu.Lock()
	defer p.home.mu.Unlock()
	return p.home.owner == p
}
