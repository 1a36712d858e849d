package guest

import (
	"context"
	"net"
	"net/netip"

	"atoll/policy"
	"atoll/relay/splice"
)

// Flow is how a guest's network stack knows a connection.
type Flow struct {
	GuestPort uint16         `json:"guest_port"`
	To        netip.AddrPort `json:"to"`
}

// Kept are the rules by which the edge judges a connection, by index: of the policy, and of the team's ceiling.
type Kept struct{ Own, Above []int }

func keptBy(admission *policy.Admission) *Kept {
	if admission.Ceiling {
		return &Kept{}
	}
	return &Kept{Own: indexes(admission.Deciding()), Above: indexes(admission.Above)}
}

func indexes(rules []*policy.Rule) []int {
	found := make([]int, len(rules))
	for i, rule := range rules {
		found[i] = rule.Index
	}
	return found
}

// Connection is one connection of a guest. The guest's lock guards what changes in it.
type Connection struct {
	ID          string
	Flow        Flow
	Destination Destination
	Address     string // where it leads; empty: a proxy resolves the name
	Kept        *Kept  // nil: it does not pass through the edge
	Via         string // the proxy that connects; empty: the host itself does

	guest  *net.TCPConn
	cancel context.CancelFunc
	joined *splice.Splice // nil: it is being made
	broken bool           // the edge has given it up, so that it is to be reset
}

// Edge judges the requests of connections.
type Edge interface {
	// Take hands a connection over and returns the end that is kept here. An error: the connection must not go on.
	Take(ctx context.Context, connection *Connection) (splice.End, error)
	// JudgeBy has its further requests judged by the rules that it keeps now.
	JudgeBy(connection *Connection)
}

// Dialer connects to where a connection leads. The caller owns what it returns.
type Dialer interface {
	Dial(ctx context.Context, connection *Connection, rule *policy.Rule) (*net.TCPConn, error)
}

// Told is a decision, as it is told.
type Told struct {
	Host, Scheme, Method string
	Port                 int
	Admission            policy.Admission
}

// Owner hears of what happens to a guest.
type Owner interface {
	Tell(told Told)
	// Unplug ends the guest's network for good.
	Unplug(reason string)
	// Wake says that data has come for a guest that sleeps, and from where.
	Wake(from string)
}
