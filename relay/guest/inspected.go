package guest

import (
	"context"
	"errors"
	"net"

	"atoll/policy"
)

// RefusedError says that the rules do not allow a connection any more.
type RefusedError struct{ Reason string }

// Error is why.
func (e *RefusedError) Error() string { return e.Reason }

var errEnded = errors.New("the connection has ended")

// DialInspected connects to where a connection that passes through the edge leads now. The caller owns what it returns.
//
// A *RefusedError: the rules do not allow it any more.
func (g *Guest) DialInspected(ctx context.Context, id string) (*net.TCPConn, error) {
	connection := g.inspected(id)
	if connection == nil {
		return nil, errEnded
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(g.ctx, cancel)()
	to := connection.Destination
	now := g.Egress.decide(ctx, to)
	switch {
	case to.Name == policy.ModelsName:
		return nil, &RefusedError{"the gateway of models is no server"}
	case now.Action == policy.Deny || now.Action == policy.Unplug:
		return nil, &RefusedError{now.Reason}
	case !keptBy(&now).isAs(connection.Kept()):
		return nil, &RefusedError{"the name leads elsewhere now, where other rules decide"}
	case g.Egress.via(to) != connection.Via:
		return nil, &RefusedError{"the policy has another proxy for it now"}
	}
	// The connection itself is still the one that its rules were decided for.
	asked := &Connection{
		ID: id, Flow: connection.Flow, Destination: to, Address: now.Address, Via: connection.Via,
	}
	return g.Dialer.Dial(ctx, asked, now.Rule)
}

// inspected is an open connection that passes through the edge; nil: there is none.
func (g *Guest) inspected(id string) *Connection {
	g.mu.Lock()
	defer g.mu.Unlock()
	for connection := range g.connections {
		if connection.ID == id && connection.Kept() != nil {
			return connection
		}
	}
	return nil
}
