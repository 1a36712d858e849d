package guest

import (
	"context"
	"encoding/binary"
	"errors"
	"net"
	"net/netip"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"atoll/policy"
	"atoll/relay/dial"
	"atoll/relay/pace"
	"atoll/relay/splice"
)

const (
	connectionsMost = 1024
	// From this number on, the relay asks guests about connections that perhaps only the server still has.
	askFrom = 128
	askFor  = 5 * time.Second
	// A browser opens a few hundred at once. Further ones wait in the kernel's queue, where they cost nothing.
	connectionsPerSecond = 250
	connectionsAtOnce    = 512
	// The accepting waits this long when descriptors or memory are short.
	shortage = 250 * time.Millisecond
)

// numbers tell the connections of all sandboxes apart.
var numbers atomic.Int64

// Parts are the parts of a guest.
type Parts struct {
	Listener *net.TCPListener // gets all TCP of the guest; the guest owns it from now on
	Egress   *Egress
	Edge     Edge
	Dialer   Dialer
	Owner    Owner
	// Ready is closed when connections may be accepted. Until then they wait in the kernel's queue. Nil: at once.
	Ready <-chan struct{}
	// Original gives where a connection went before it was redirected here; nil asks the kernel.
	Original func(*net.TCPConn) (netip.AddrPort, error)
}

// Guest is the network of one sandbox. It never ends a connection by itself, because a guest may be suspended for days. A
// connection that it gives up is reset.
type Guest struct {
	Parts
	room   *splice.Room
	ctx    context.Context
	end    context.CancelFunc
	served sync.WaitGroup

	mu          sync.Mutex
	connections map[*Connection]struct{}
	refused     map[*net.TCPConn]Flow // a guest that is held is told of them when it is released
	held        bool
	probing     bool
	asking      *time.Timer
	watching    bool
}

// New makes a guest that accepts connections as soon as it is ready.
func New(parts Parts) *Guest {
	made := &Guest{
		Parts: parts, room: splice.NewRoom(splice.RoomBytes),
		connections: map[*Connection]struct{}{}, refused: map[*net.TCPConn]Flow{},
	}
	if made.Original == nil {
		made.Original = original
	}
	made.ctx, made.end = context.WithCancel(context.Background())
	made.served.Go(made.accept)
	return made
}

// Close resets every connection and accepts no new ones.
func (g *Guest) Close() {
	g.end()
	g.Listener.Close()
	g.Reset()
	g.served.Wait()
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.asking != nil {
		g.asking.Stop()
	}
	g.closeRefused()
}

func (g *Guest) accept() {
	if g.Ready != nil {
		select {
		case <-g.Ready:
		case <-g.ctx.Done():
			return
		}
	}
	allowed := pace.New(connectionsPerSecond, connectionsAtOnce, time.Now)
	for allowed.Wait(g.ctx) {
		accepted, err := g.Listener.AcceptTCP()
		switch {
		case g.ctx.Err() != nil:
			if err == nil {
				accepted.Close()
			}
			return
		case err != nil:
			pace.Rest(g.ctx, shortage)
		default:
			allowed.Take()
			g.take(accepted)
		}
	}
}

func (g *Guest) take(accepted *net.TCPConn) {
	to, err := g.tuned(accepted)
	if err != nil {
		accepted.Close()
		return
	}
	flow := Flow{GuestPort: accepted.RemoteAddr().(*net.TCPAddr).AddrPort().Port(), To: to}
	destination := g.Egress.destination(to)
	connection := &Connection{
		ID: "c" + strconv.FormatInt(numbers.Add(1), 10), Flow: flow, Destination: destination, guest: accepted,
		Address: destination.Address.String(), Via: g.Egress.via(destination),
	}
	ctx, cancel := context.WithCancel(g.ctx)
	connection.cancel = cancel
	g.mu.Lock()
	open := len(g.connections)
	if open >= askFrom && g.asking == nil {
		g.ask()
	}
	if open >= connectionsMost || g.ctx.Err() != nil {
		g.mu.Unlock()
		cancel()
		g.refuse(accepted, flow)
		return
	}
	g.connections[connection] = struct{}{}
	g.mu.Unlock()
	g.served.Go(func() {
		defer cancel()
		g.lead(ctx, connection)
	})
}

// tuned prepares the guest's end, and tells where its connection went before it was redirected here.
func (g *Guest) tuned(accepted *net.TCPConn) (netip.AddrPort, error) {
	raw, err := accepted.SyscallConn()
	if err == nil {
		err = dial.Tune(raw)
	}
	if err != nil {
		return netip.AddrPort{}, err
	}
	return g.Original(accepted)
}

// lead connects a connection to where it leads, and carries it to its end.
func (g *Guest) lead(ctx context.Context, connection *Connection) {
	way := g.Egress.decide(ctx, connection.Destination)
	isNoted := g.tell(&way.Admission, connection.Destination)
	switch way.Action {
	case policy.Inspect:
		g.setAddress(connection, way.Address)
		g.inspect(ctx, connection, &way, nil)
		return
	case policy.Allow:
		if !isNoted {
			g.drop(connection)
			return
		}
		g.setAddress(connection, way.Address)
	default:
		g.drop(connection)
		if way.Action == policy.Unplug {
			g.Owner.Unplug(way.Reason)
		}
		return
	}
	remote, err := g.Dialer.Dial(ctx, connection, way.Rule)
	if err != nil {
		g.drop(connection)
		return
	}
	switch g.carry(ctx, connection, remote, g.Egress.checks(connection.Destination.Name), nil) {
	case splice.Inspected:
		// Do not use the earlier verdict: the rules may have changed since.
		now := g.Egress.again(connection.Destination, connection.Address)
		g.inspect(ctx, connection, &now, connection.joined.Sent())
	case splice.Refused:
		denied := policy.Admission{
			Action: policy.Deny, Rule: way.Rule, Reason: "it does not ask for " + connection.Destination.Name,
		}
		g.tell(&denied, connection.Destination)
		g.forget(connection)
	case splice.Betrayed:
		reason := "a canary appeared in a connection to " + connection.Destination.Host()
		g.tell(&policy.Admission{Action: policy.Unplug, Reason: reason}, connection.Destination)
		g.forget(connection)
		g.Owner.Unplug(reason)
	default:
		g.forget(connection)
	}
}

// inspect hands a connection to the edge, with the bytes that its guest has sent already.
func (g *Guest) inspect(ctx context.Context, connection *Connection, found *decided, said []byte) {
	g.mu.Lock()
	connection.kept.Store(keptBy(found))
	connection.joined = nil
	// Rules that were set meanwhile have found nothing of it to judge again.
	mayLive := found.version == g.Egress.current().Version || g.mayLive(connection)
	g.mu.Unlock()
	if !mayLive {
		g.drop(connection)
		return
	}
	kept, err := g.Edge.Take(ctx, connection)
	if err != nil {
		g.drop(connection)
		return
	}
	g.carry(ctx, connection, kept, splice.Checks{}, said)
	g.forget(connection)
}

// carry moves the bytes of a connection until its end.
func (g *Guest) carry(
	ctx context.Context, connection *Connection, remote splice.End, checks splice.Checks, said []byte,
) splice.Outcome {
	if len(said) > 0 {
		if _, err := remote.Write(said); err != nil {
			remote.Close()
			g.refuse(connection.guest, connection.Flow)
			return splice.Reset
		}
	}
	joined, err := splice.New(heedful(ctx, connection.guest, remote), remote, g.room, checks)
	if err != nil {
		remote.Close()
		g.refuse(connection.guest, connection.Flow)
		return splice.Reset
	}
	g.mu.Lock()
	connection.joined = joined
	isOver := ctx.Err() != nil || connection.broken && !g.held
	switch {
	case isOver:
	case !g.held:
		joined.Release()
	case g.watching:
		g.watch(connection)
	}
	g.mu.Unlock()
	if isOver { // meanwhile it was given up
		joined.Reset()
	}
	return joined.Run()
}

func (g *Guest) setAddress(connection *Connection, address string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	connection.Address = address
}

// drop gives up a connection that never came to be.
func (g *Guest) drop(connection *Connection) {
	g.forget(connection)
	g.refuse(connection.guest, connection.Flow)
}

func (g *Guest) forget(connection *Connection) {
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.connections, connection)
}

// refuse resets a connection. A reset is sent once: a sleeping guest would miss it, and then wait for ever after it wakes.
func (g *Guest) refuse(guest *net.TCPConn, flow Flow) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.held && g.ctx.Err() == nil {
		g.refused[guest] = flow
		return
	}
	guest.Close()
}

func (g *Guest) closeRefused() {
	for guest := range g.refused {
		guest.Close()
	}
	clear(g.refused)
}

// tell notes a decision. False is that it cannot be noted.
func (g *Guest) tell(admission *policy.Admission, to Destination) bool {
	// What is to be inspected is decided later, and without rules only refusals count.
	if admission.Action == policy.Inspect || g.Egress.current().Bounds.Own == nil && admission.Action == policy.Allow {
		return true
	}
	return g.Owner.Tell(Told{Host: to.Host(), Port: to.Port, Scheme: "tcp", Admission: *admission})
}

func original(accepted *net.TCPConn) (netip.AddrPort, error) {
	raw, err := accepted.SyscallConn()
	if err != nil {
		return netip.AddrPort{}, err
	}
	var name *unix.IPv6Mreq
	var failure error
	err = raw.Control(func(fd uintptr) {
		// The kernel gives a sockaddr_in, which fits into this.
		name, failure = unix.GetsockoptIPv6Mreq(int(fd), unix.SOL_IP, unix.SO_ORIGINAL_DST)
	})
	if err = errors.Join(err, failure); err != nil {
		return netip.AddrPort{}, err
	}
	address := name.Multiaddr
	return netip.AddrPortFrom(netip.AddrFrom4([4]byte(address[4:8])), binary.BigEndian.Uint16(address[2:])), nil
}
