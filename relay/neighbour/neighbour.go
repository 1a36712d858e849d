// Package neighbour is the edge as the relay knows it: the process beside it that judges the requests of connections.
package neighbour

import (
	"context"
	"errors"
	"net"
	"sync"
	"time"

	"atoll/channel"
	"atoll/edge/control"
)

// How long a connection waits for an edge that starts.
const startMost = 5 * time.Second

var (
	errNoEdge = errors.New("the process that judges requests does not run")
	errGone   = errors.New("the sandbox is gone")
)

// Inspected is a guest whose requests are judged.
type Inspected interface {
	// ResetInspected resets the connections that pass through the edge, as it has ended.
	ResetInspected()
	// ResetConnection resets a connection that the edge has given up.
	ResetConnection(id string)
	// DialInspected connects to where a connection that passes through the edge leads now.
	DialInspected(ctx context.Context, id string) (*net.TCPConn, error)
	// DialProvider connects to a provider of models, for a connection to their gateway.
	DialProvider(ctx context.Context, id, provider string) (*net.TCPConn, error)
}

// Neighbour is the edge, which may end and be followed by another one. While none runs, connections that need it do not
// pass.
type Neighbour struct {
	// Lost is called with its pair when an edge is gone, and none has followed it. It is set before the first one comes; nil:
	// nobody is told.
	Lost func(pair string)

	following sync.Mutex // held while one edge follows another

	mu    sync.Mutex
	edge  *edge         // nil: none runs
	came  chan struct{} // closed while one runs
	sides map[string]*Side
}

// New has no edge yet.
func New() *Neighbour { return &Neighbour{came: make(chan struct{}), sides: map[string]*Side{}} }

// Attach takes the channel to an edge, which replaces the one before. When it ends, the connections that passed through that
// edge are reset. The pair is what the supervisor calls the channel.
func (n *Neighbour) Attach(link *channel.Channel, pair string) {
	n.following.Lock()
	defer n.following.Unlock()
	n.lose()
	next := newEdge(link, pair)
	n.mu.Lock()
	n.edge = next
	close(n.came)
	n.mu.Unlock()
	go n.listen(next)
}

// Pair is what the channel to the edge is called; empty if none runs.
func (n *Neighbour) Pair() string {
	if edge := n.current(); edge != nil {
		return edge.pair
	}
	return ""
}

// Side is the edge for one sandbox, in place of the sandbox's last one.
func (n *Neighbour) Side(sandbox string, inspected Inspected) *Side {
	made := newSide(n, sandbox, inspected)
	n.mu.Lock()
	defer n.mu.Unlock()
	n.sides[sandbox] = made
	return made
}

// lose parts from the edge, if one runs. The lock of who follows is held: no connection goes to the next one before those of
// this one are reset.
func (n *Neighbour) lose() {
	n.mu.Lock()
	lost := n.edge
	if lost == nil {
		n.mu.Unlock()
		return
	}
	n.edge, n.came = nil, make(chan struct{})
	sides := make([]*Side, 0, len(n.sides))
	for _, each := range n.sides {
		sides = append(sides, each)
	}
	n.mu.Unlock()
	lost.close()
	for _, each := range sides {
		each.inspected.ResetInspected()
	}
}

// listen does what an edge asks until it is gone.
func (n *Neighbour) listen(to *edge) {
	for {
		var asked control.Dial // the other messages are the same with less
		files, err := to.link.Receive(&asked)
		channel.CloseAll(files) // none is expected from there
		if err != nil {
			break
		}
		side := n.side(asked.Sandbox)
		switch {
		case asked.Op == "dial" && side != nil:
			side.dial(to, &asked)
		case asked.Op == "dial":
			to.answer(asked.ID, nil, errGone)
		case asked.Op == "reset" && side != nil:
			side.inspected.ResetConnection(asked.Connection)
		case asked.Op == "alive":
			to.lived(asked.ID)
		}
	}
	n.following.Lock()
	defer n.following.Unlock()
	if n.current() == to {
		n.lose()
		if n.Lost != nil {
			n.Lost(to.pair)
		}
	}
}

func (n *Neighbour) side(sandbox string) *Side {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.sides[sandbox]
}

func (n *Neighbour) current() *edge {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.edge
}

// await is the edge. It waits a moment for one that starts.
func (n *Neighbour) await(ctx context.Context) (*edge, error) {
	timer := time.NewTimer(startMost)
	defer timer.Stop()
	for {
		n.mu.Lock()
		found, came := n.edge, n.came
		n.mu.Unlock()
		if found != nil {
			return found, nil
		}
		select {
		case <-came:
		case <-timer.C:
			return nil, errNoEdge
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

func (n *Neighbour) forget(side *Side) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.sides[side.sandbox] == side {
		delete(n.sides, side.sandbox)
	}
}
