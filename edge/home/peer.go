package home

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"sync"
	"time"

	"atoll/channel"
	"atoll/edge/control"
	"atoll/edge/models"
	"atoll/edge/serve"
)

const (
	peersMost = 16
	// How many sandboxes a new owner hears of in one message.
	knownTogether = 500
)

// peer is a connected program. Only the owner may ask, and gets the events.
type peer struct {
	link    *channel.Channel
	home    *Home
	ctx     context.Context // ends when it is the owner no more
	stop    context.CancelFunc
	telling sync.WaitGroup
	isTold  bool
}

// Serve talks to those who connect until the home ends.
func (h *Home) Serve(listener *net.UnixListener) error {
	h.mu.Lock()
	h.listener = listener
	h.mu.Unlock()
	first := time.AfterFunc(firstMost, func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.endAlone()
	})
	defer first.Stop()
	for {
		conn, err := channel.Accept(listener)
		switch {
		case errors.Is(err, net.ErrClosed):
			return h.close()
		case err != nil:
			h.fail(fmt.Errorf("accept: %w", err))
		default:
			h.welcome(conn)
		}
	}
}

func (h *Home) welcome(conn *net.UnixConn) {
	if err := channel.MayTalk(conn, h.user, "edge"); err != nil {
		h.faults.note(err.Error())
		conn.Close()
		return
	}
	made := &peer{link: channel.New(conn), home: h}
	made.ctx, made.stop = context.WithCancel(h.ctx)
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed || len(h.peers) >= peersMost {
		conn.Close()
		return
	}
	h.peers[made] = struct{}{}
	h.served.Go(made.listen)
}

// Send is of serve.Owner.
func (p *peer) Send(message any) error { return p.link.Send(message) }

// listen serves a peer's requests until it is gone or makes no sense.
func (p *peer) listen() {
	defer p.leave()
	message, file, err := control.Receive(p.link)
	if err != nil {
		return
	}
	closeFile(file)
	if !p.hello(message) {
		return
	}
	for {
		// A peer that leaves shows as an end.
		if message, file, err = control.Receive(p.link); err != nil {
			return
		}
		answer, err := p.handle(message, file)
		if err != nil {
			p.home.faults.note(strings.TrimSpace(message.Op+" "+message.Sandbox) + ": " + err.Error())
		}
		if p.answer(answer) != nil {
			return
		}
		if message.Op == "config" {
			p.tell()
		}
	}
}

// told is an answer that follows a report of all decisions and of the counts of limits.
type told struct{ edge *serve.Edge }

// failed is an answer with which the edge ends.
type failed struct{ why error }

// answer sends one, if there is one. That may take as long as the owner does not read, and nobody else waits for it.
func (p *peer) answer(one any) error {
	if one == nil {
		return nil
	}
	switch each := one.(type) {
	case told:
		if err := errors.Join(each.edge.TellSeen(p), each.edge.TellSpent(p)); err != nil {
			return err
		}
		one = control.Told{Op: "told"}
	case failed:
		defer p.home.fail(each.why)
		one = control.Log{Op: "log", Text: each.why.Error()}
	}
	return p.Send(one)
}

// handle serves a request of the owner, and gives the answer, if there is one. It owns the descriptor.
func (p *peer) handle(message *control.Message, file *os.File) (any, error) {
	h := p.home
	h.handling.Lock()
	defer h.handling.Unlock()
	if !p.isOwner() {
		closeFile(file)
		return nil, nil
	}
	switch {
	case message.Op == "config":
		err := h.configure(message, file)
		switch {
		case err != nil && h.edge == nil:
			return failed{fmt.Errorf("the configuration: %w", err)}, nil
		case err != nil:
			return nil, err
		}
		return control.Ready{Op: "ready"}, nil
	case message.Op == "stay":
		return nil, h.stay(file)
	case h.edge == nil:
		closeFile(file)
		return nil, errors.New("there is no configuration yet")
	case message.Op == "tell":
		return told{h.edge}, nil
	case message.Op == "give_back":
		h.edge.GiveBack()
		return nil, nil
	case message.Op == "relay":
		return nil, h.relays.replace(file, message.Pair)
	case message.Op == "judge":
		answer, err := serve.Judge(message, file)
		if err != nil {
			return nil, err
		}
		return answer, nil
	case message.Op == "answer":
		closeFile(file)
		if refused := h.edge.Answer(message); refused != nil {
			return refused, nil
		}
		return nil, nil
	}
	return nil, h.edge.Handle(message, file)
}

// hello makes a peer the owner, in place of the earlier one. It is false if the peer did not become it.
func (p *peer) hello(message *control.Message) bool {
	h := p.home
	said := control.Welcome{Op: "welcome", Protocol: control.Protocol, Confined: h.confined}
	if message.Op != "hello" || message.Protocol != control.Protocol {
		said.Error = fmt.Sprintf("the first message is %s of protocol %d, and not hello of %d",
			message.Op, message.Protocol, control.Protocol)
		// A peer that does not read it does not matter.
		_ = p.Send(said)
		return false
	}
	if !p.own() {
		return false
	}
	var known map[string]int64
	var holds map[string]models.Amount
	h.handling.Lock()
	if h.edge != nil {
		holds = h.edge.Greet()
		known = h.edge.Known()
		said.Pair, said.Config = h.relays.current(), h.config
	}
	h.handling.Unlock()
	if p.sendKnown(known) != nil || p.sendHolds(holds) != nil || p.Send(said) != nil {
		return false
	}
	p.tell()
	return true
}

// own has nobody else be the owner, nor be told anything any more. It is false if the home ends.
func (p *peer) own() bool {
	h := p.home
	h.mu.Lock()
	before := h.owner
	if h.closed {
		h.mu.Unlock()
		return false
	}
	h.owner = p
	h.mu.Unlock()
	if before != nil {
		before.link.Close()
		before.stop()
		before.telling.Wait()
	}
	return true
}

func (p *peer) sendKnown(known map[string]int64) error {
	some := map[string]int64{}
	for id, version := range known {
		some[id] = version
		if len(some) == knownTogether {
			if err := p.Send(control.Known{Op: "known", Policies: some}); err != nil {
				return err
			}
			some = map[string]int64{}
		}
	}
	if len(some) == 0 {
		return nil
	}
	return p.Send(control.Known{Op: "known", Policies: some})
}

// sendHolds tells what may still be spent on models. It says so too if that is nothing.
func (p *peer) sendHolds(holds map[string]models.Amount) error {
	some := map[string]models.Amount{}
	for budget, amount := range holds {
		if len(some) == knownTogether {
			said := control.Holds{Op: "holds", Edge: p.home.name, Budgets: some, More: true}
			if err := p.Send(said); err != nil {
				return err
			}
			some = map[string]models.Amount{}
		}
		some[budget] = amount
	}
	return p.Send(control.Holds{Op: "holds", Edge: p.home.name, Budgets: some})
}

// tell sends the owner all decisions from now on. It begins when there is an edge.
func (p *peer) tell() {
	h := p.home
	h.handling.Lock()
	edge := h.edge
	h.handling.Unlock()
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.owner != p || edge == nil || p.isTold {
		return
	}
	p.isTold = true
	// The next owner gets the events that this one no longer takes.
	p.telling.Go(func() { edge.Tell(p.ctx, p) })
	p.telling.Go(func() { h.faults.tell(p.ctx, p) })
}

func (p *peer) leave() {
	p.link.Close()
	p.stop()
	p.telling.Wait()
	h := p.home
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.peers, p)
	if h.owner == p {
		h.owner = nil
		h.endAlone()
	}
}

func (p *peer) isOwner() bool {
	p.home.mu.Lock()
	defer p.home.mu.Unlock()
	return p.home.owner == p
}

func closeFile(file *os.File) {
	if file != nil {
		file.Close()
	}
}
