package guest

import (
	"context"
	"net"
	"net/netip"
	"slices"
	"sync/atomic"

	"atoll/policy"
	"atoll/relay/splice"
)

// Flow is how a guest's network stack knows a connection.
type Flow struct {
	GuestPort uint16         `json:"guest_port"`
	To        netip.AddrPort `json:"to"`
}

// Kept are the rules by which the edge judges a connection, by index: of the policy, and of the team's ceiling.
type Kept struct {
	Version    int64
	Own, Above []int
}

func keptBy(found *decided) *Kept {
	if found.Ceiling {
		return &Kept{Version: found.version}
	}
	return &Kept{Version: found.version, Own: indexes(found.Deciding()), Above: indexes(found.Above)}
}

// isAs tells whether these are the rules of the same indices.
func (k *Kept) isAs(other *Kept) bool {
	return slices.Equal(k.Own, other.Own) && slices.Equal(k.Above, other.Above)
}

func indexes(rules []*policy.Rule) []int {
	found := make([]int, len(rules))
	for i, rule := range rules {
		found[i] = rule.Index
	}
	return found
}

// Connection is one connection of a guest. The guest's lock guards its changing fields.
type Connection struct {
	ID          string
	Flow        Flow
	Destination Destination
	Address     string // where it leads; empty: a proxy resolves the name
	Via         string // the proxy that connects; empty: the host itself does

	kept   atomic.Pointer[Kept] // nil: it does not pass through the edge
	guest  *net.TCPConn
	cancel context.CancelFunc
	joined *splice.Splice // nil: it is being made
	broken bool           // the edge has given it up, so that it is to be reset
}

// Kept are the current rules by which the edge judges it. They change only right before a call of JudgeBy.
func (c *Connection) Kept() *Kept { return c.kept.Load() }

// Edge judges the requests of connections.
type Edge interface {
	// Take hands a connection over and returns the end that is kept here. An error: the connection must not go on. The
	// connection goes with its rules of that moment. A Mortal end has to confirm its last word.
	Take(ctx context.Context, connection *Connection) (splice.End, error)
	// JudgeBy has its further requests judged by the rules that it keeps now. It does not wait for the edge.
	JudgeBy(connection *Connection)
}

// Dialer connects to where a connection leads. The caller owns what it returns.
type Dialer interface {
	Dial(ctx context.Context, connection *Connection, rule *policy.Rule) (*net.TCPConn, error)
}

// Told is a decision for the owner.
type Told struct {
	Host, Scheme, Method string
	Port                 int
	Admission            policy.Admission
}

// Owner hears of the events of a guest.
type Owner interface {
	// Tell notes a decision. False is that there is no room for it, and that nothing may pass.
	Tell(told Told) bool
	// Unplug ends the guest's network for good.
	Unplug(reason string)
	// Wake says that data has come for a guest that sleeps, and from where.
	Wake(from string)
}
