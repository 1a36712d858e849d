package main

import (
	"atoll/relay/guest"
	"atoll/relay/home"
	"atoll/relay/neighbour"
)

// edges is the edge beside this process, as links see it.
type edges struct{ *neighbour.Neighbour }

var _ home.Edges = edges{}

// OnLost is called when the edge is gone.
func (e edges) OnLost(tell func(pair string)) { e.Lost = tell }

// Side is the edge for one sandbox.
func (e edges) Side(sandbox string, of *guest.Guest) home.Side { return e.Neighbour.Side(sandbox, of) }
