package main

import (
	"atoll/channel"
	"atoll/relay/guest"
	"atoll/relay/home"
	"atoll/relay/neighbour"
)

// edges is the edge beside this process, as links see it.
type edges struct{ *neighbour.Neighbour }

var _ home.Edges = edges{}

// Attach takes the channel to an edge.
func (e edges) Attach(to *channel.Channel) { e.Neighbour.Attach(to) }

// Side is the edge for one sandbox.
func (e edges) Side(sandbox string, of *guest.Guest) home.Side { return e.Neighbour.Side(sandbox, of) }
