package home

import (
	"context"
	"errors"
	"sync/atomic"

	"atoll/channel"
	"atoll/relay/guest"
	"atoll/relay/splice"
)

// Edges are the way to the process that judges requests.
type Edges interface {
	// Attach takes over the channel to such a process, in place of one before it. The pair is what the supervisor calls
	// this channel.
	Attach(to *channel.Channel, pair string)
	// Pair is what the channel to the process that runs is called; empty if none runs.
	Pair() string
	// OnLost has this called with the pair when the process is gone, or its channel is. It is called before the first Attach.
	OnLost(tell func(pair string))
	// Side is that process for one sandbox, whose connections a guest has.
	Side(sandbox string, of *guest.Guest) Side
}

// Side is the process that judges requests, for one guest.
type Side interface {
	guest.Edge
	Close()
}

var errNoEdge = errors.New("no process judges requests here")

// judged is the side of one guest. It has none before the first rules say which sandbox the guest is.
type judged struct {
	sandbox string // guarded by the link's mu, as are changes of side
	side    atomic.Pointer[Side]
}

// Take hands a connection over.
func (j *judged) Take(ctx context.Context, connection *guest.Connection) (splice.End, error) {
	if side := j.side.Load(); side != nil {
		return (*side).Take(ctx, connection)
	}
	return nil, errNoEdge
}

// JudgeBy tells the rules that a connection keeps. Without a side there is none to tell of.
func (j *judged) JudgeBy(connection *guest.Connection) {
	if side := j.side.Load(); side != nil {
		(*side).JudgeBy(connection)
	}
}

// set has the requests of a sandbox judged from now on.
func (j *judged) set(edges Edges, of *guest.Guest, sandbox string) {
	if sandbox != j.sandbox {
		j.close()
	}
	if j.side.Load() == nil && sandbox != "" && edges != nil {
		made := edges.Side(sandbox, of)
		j.side.Store(&made)
	}
	j.sandbox = sandbox
}

func (j *judged) close() {
	if side := j.side.Swap(nil); side != nil {
		(*side).Close()
	}
}
