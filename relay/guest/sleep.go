package guest

import (
	"strconv"
	"time"

	"atoll/policy"
	"atoll/relay/socket"
)

// Hold passes no bytes until Release. Connections stay open.
func (g *Guest) Hold() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.held = true
	for connection := range g.connections {
		if connection.joined != nil {
			connection.joined.Hold()
		}
	}
}

// IsHeld tells whether it passes no bytes.
func (g *Guest) IsHeld() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.held
}

// Release undoes Hold.
func (g *Guest) Release() {
	g.mu.Lock()
	g.held, g.watching = false, false
	probed := g.probing
	g.probing = false
	g.closeRefused()
	g.mu.Unlock()
	// Do this now, not when the rules were set: a sleeping guest does not receive a reset.
	g.JudgeAgain()
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.held {
		return
	}
	for connection := range g.connections {
		if connection.joined == nil {
			continue
		}
		if probed {
			connection.joined.Probe(false)
		}
		connection.joined.Release()
	}
}

// JudgeAgain resets the connections that the rules do not allow any more. A held guest gets its resets at its release.
func (g *Guest) JudgeAgain() {
	g.mu.Lock()
	defer g.mu.Unlock()
	for connection := range g.connections {
		// The edge cuts connections without new rules, and most may go on. So judge also while the guest is held.
		if !g.mayLive(connection) && !g.held {
			connection.reset()
		}
	}
}

// ResetInspected resets the connections that pass through the edge, as it has ended. Connections that wait for an edge go
// on.
func (g *Guest) ResetInspected() {
	g.breakThose(func(connection *Connection) bool { return connection.Kept() != nil && connection.joined != nil })
}

// ResetConnection resets a connection that the edge has given up.
func (g *Guest) ResetConnection(id string) {
	g.breakThose(func(connection *Connection) bool { return connection.ID == id })
}

func (g *Guest) breakThose(is func(*Connection) bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for connection := range g.connections {
		if !is(connection) {
			continue
		}
		connection.broken = true
		if !g.held {
			connection.reset()
		}
	}
}

// Reset resets every connection, at both ends.
func (g *Guest) Reset() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.closeRefused()
	for connection := range g.connections {
		connection.reset()
	}
}

func (c *Connection) reset() {
	c.cancel()
	if c.joined != nil {
		c.joined.Reset()
	}
}

// mayLive tells whether the rules still allow a connection, and has the edge judge it by those of now.
func (g *Guest) mayLive(connection *Connection) bool {
	if connection.broken || connection.Via != g.Egress.via(connection.Destination) {
		return false
	}
	now := g.Egress.again(connection.Destination, connection.Address)
	if connection.Kept() == nil || now.Action == policy.Deny || now.Action == policy.Unplug {
		return now.Action == policy.Allow
	}
	kept := keptBy(&now)
	connection.kept.Store(kept)
	g.Edge.JudgeBy(connection)
	return now.Action == policy.Inspect || len(kept.Own) > 0
}

// AwaitAccepted waits a moment until the connections are accepted that the guest has opened by now.
func (g *Guest) AwaitAccepted() {
	for end := time.Now().Add(acceptMost); socket.HasWaiting(g.Listener) && time.Now().Before(end); {
		time.Sleep(acceptEach)
	}
}

// Flows are the connections that are open now.
func (g *Guest) Flows() []Flow {
	g.mu.Lock()
	defer g.mu.Unlock()
	flows := make([]Flow, 0, len(g.connections))
	for connection := range g.connections {
		flows = append(flows, connection.Flow)
	}
	return flows
}

// Kept is how many of the guest's connections it would only reset. It is false if it has others.
//
// Known are the connections that are reset if this guest ends. It must not end with any other.
func (g *Guest) Kept(known []Flow) (int, bool) {
	isKnown := map[Flow]bool{}
	for _, flow := range known {
		isKnown[flow] = true
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	kept := len(g.refused)
	for _, flow := range g.refused {
		if !isKnown[flow] {
			return 0, false
		}
	}
	for connection := range g.connections {
		if connection.joined == nil || !isKnown[connection.Flow] || !connection.joined.IsOver() {
			return 0, false
		}
		if !connection.joined.GuestIsGone() {
			kept++
		}
	}
	return kept, !socket.HasWaiting(g.Listener)
}

// OwesServers tells whether something that the guest has sent, or a connection that it wants, has not got out yet.
func (g *Guest) OwesServers() bool {
	if socket.HasWaiting(g.Listener) {
		return true
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	for connection := range g.connections {
		if connection.joined == nil || connection.joined.OwesRemote() {
			return true
		}
	}
	return false
}

// Probe asks the servers until Release whether they still know the connections.
func (g *Guest) Probe() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.probing = true
	for connection := range g.connections {
		if connection.joined != nil {
			connection.joined.Probe(true)
		}
	}
}

// Watch notices data that comes for a guest that is held, also what has come already. It tells the owner once.
func (g *Guest) Watch() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.held {
		return
	}
	g.watching = true
	for connection := range g.connections {
		if connection.joined != nil {
			g.watch(connection)
		}
	}
}

// IsWatched tells whether data may come on a connection that is watched.
func (g *Guest) IsWatched() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.watching {
		return false
	}
	for connection := range g.connections {
		if connection.joined != nil && connection.joined.IsWatched() {
			return true
		}
	}
	return false
}

// IsFresh tells whether the guest has got something only a moment ago, for which it may have had no time.
func (g *Guest) IsFresh() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	for connection := range g.connections {
		joined := connection.joined
		if joined != nil && !joined.GuestIsGone() && joined.OwesGuest(momentMilliseconds) {
			return true
		}
	}
	return false
}

const (
	momentMilliseconds = 50
	// What a guest opens faster than it is accepted is not waited for.
	acceptMost = 20 * time.Millisecond
	acceptEach = time.Millisecond
)

// watch watches one connection. The guest's lock is held.
func (g *Guest) watch(connection *Connection) {
	joined := connection.joined
	if joined.GuestIsGone() {
		return
	}
	joined.OwesRemote() // the guest's last bytes have to get out, as the answer may wake it
	if joined.OwesGuest(0) {
		go g.wake(connection)
		return
	}
	joined.Watch(func() { g.wake(connection) })
}

func (g *Guest) wake(connection *Connection) {
	g.mu.Lock()
	// The guest would only get a reset on a connection that is no longer allowed.
	isWoken := g.watching && g.mayLive(connection)
	g.watching = g.watching && !isWoken
	g.mu.Unlock()
	if isWoken {
		to := connection.Destination
		g.Owner.Wake(to.Host() + ":" + strconv.Itoa(to.Port))
	}
}

// ask asks the guest for a moment about connections that it may have closed long ago. The guest's lock is held.
func (g *Guest) ask() {
	g.askAll(true)
	g.asking = time.AfterFunc(askFor, func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		g.asking = nil
		// A later question would be taken for traffic for which a paused guest must wake.
		g.askAll(false)
	})
}

func (g *Guest) askAll(wanted bool) {
	for connection := range g.connections {
		if connection.joined != nil {
			connection.joined.Ask(wanted)
		}
	}
}
