package resolve

import (
	"context"
	"encoding/binary"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/miekg/dns"
)

const (
	leastTTL, mostTTL = time.Second, 30 * time.Second
	cachedMost        = 4096
	// A name whose owner gives it more addresses would cost memory.
	addressesMost = 64
	// PayloadMost is the longest answer by datagram that is asked for, and the longest that a guest gets under rules.
	PayloadMost = 1232
)

// Error says that a name cannot be resolved.
type Error struct {
	Name string
	Code int // the response code of DNS that says why; success: it has no address
}

// Error is what a guest's owner reads.
func (e *Error) Error() string {
	text, ok := dns.RcodeToString[e.Code]
	if !ok {
		text = fmt.Sprintf("RCODE%d", e.Code)
	}
	return e.Name + " cannot be resolved: " + text
}

// Resolver resolves names for connections that the host makes for guests. It remembers addresses for as long as the answer
// says, at most 30 s. It is safe for concurrent use.
type Resolver struct {
	client *Client
	now    func() time.Time

	mu     sync.Mutex
	cached map[string]answer
	asking map[string]*asking
}

type answer struct {
	addresses []netip.Addr
	until     time.Time
}

// asking is a question that is under way, for all who wait for its answer.
type asking struct {
	done    chan struct{}
	cancel  context.CancelFunc
	waiting int // guarded by the resolver's mu

	// Set before done is closed.
	addresses []netip.Addr
	err       error
}

// NewResolver makes one that knows nothing yet.
func NewResolver(client *Client, now func() time.Time) *Resolver {
	return &Resolver{client: client, now: now, cached: map[string]answer{}, asking: map[string]*asking{}}
}

// Addresses gives the addresses of a name: of IPv4, or of IPv6 if it has none of IPv4. Without an error there is at least one.
// Callers share them. If the name does not exist, has no address, or no nameserver answers, the error is an *Error.
func (r *Resolver) Addresses(ctx context.Context, name string) ([]netip.Addr, error) {
	r.mu.Lock()
	if known, ok := r.cached[name]; ok && r.now().Before(known.until) {
		r.mu.Unlock()
		return known.addresses, nil
	}
	asked := r.asking[name]
	if asked == nil {
		asked = r.ask(name)
	}
	asked.waiting++
	r.mu.Unlock()
	select {
	case <-asked.done:
		return asked.addresses, asked.err
	case <-ctx.Done():
		r.leave(name, asked)
		return nil, context.Cause(ctx)
	}
}

// Forget has every name asked for again from now on.
func (r *Resolver) Forget() {
	r.mu.Lock()
	defer r.mu.Unlock()
	clear(r.cached)
	clear(r.asking) // present waiters get the answer of the time when they asked
}

// Message gives a nameserver's answer to a question made here, without a guest's additions. If no nameserver
// answers, or the answer is not valid, the error is an *Error.
func (r *Resolver) Message(ctx context.Context, name string, kind uint16) (*dns.Msg, error) {
	failed := &Error{name, dns.RcodeServerFailure}
	query := new(dns.Msg).SetQuestion(dns.Fqdn(name), kind).SetEdns0(PayloadMost, false)
	wire, err := query.Pack()
	if err != nil {
		return nil, failed
	}
	for _, by := range []Network{Datagram, Stream} {
		reply, err := r.client.Exchange(ctx, wire, by)
		if err != nil {
			break
		}
		if flags(reply)&truncated != 0 {
			continue
		}
		if answer, ok := unpacked(reply); ok {
			return answer, nil
		}
		break
	}
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	return nil, failed
}

// unpacked reads a message. The library takes one that ends early for a shorter one.
func unpacked(wire []byte) (*dns.Msg, bool) {
	read := new(dns.Msg)
	if err := read.Unpack(wire); err != nil {
		return nil, false
	}
	return read, len(read.Answer) == int(binary.BigEndian.Uint16(wire[6:]))
}

// ask begins to ask for a name. The lock is held.
func (r *Resolver) ask(name string) *asking {
	ctx, cancel := context.WithCancel(context.Background())
	asked := &asking{done: make(chan struct{}), cancel: cancel}
	r.asking[name] = asked
	go func() {
		defer cancel()
		addresses, ttl, err := r.resolve(ctx, name)
		r.mu.Lock()
		defer r.mu.Unlock()
		defer close(asked.done)
		asked.addresses, asked.err = addresses, err
		if r.asking[name] != asked {
			return // it was told to forget meanwhile, or nobody waits any more
		}
		delete(r.asking, name)
		if err == nil {
			r.remember(name, answer{addresses, r.now().Add(ttl)})
		}
	}()
	return asked
}

// leave waits no longer. A question for whose answer nobody waits is given up.
func (r *Resolver) leave(name string, asked *asking) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if asked.waiting--; asked.waiting > 0 {
		return
	}
	asked.cancel()
	if r.asking[name] == asked {
		delete(r.asking, name)
	}
}

func (r *Resolver) remember(name string, found answer) {
	for other := range r.cached {
		if len(r.cached) < cachedMost {
			break
		}
		delete(r.cached, other) // any one: it costs no more than a question
	}
	r.cached[name] = found
}

func (r *Resolver) resolve(ctx context.Context, name string) ([]netip.Addr, time.Duration, error) {
	for _, kind := range []uint16{dns.TypeA, dns.TypeAAAA} {
		message, err := r.Message(ctx, name, kind)
		if err != nil {
			return nil, 0, err
		}
		if message.Rcode != dns.RcodeSuccess {
			return nil, 0, &Error{name, message.Rcode}
		}
		if found := addressesIn(message, kind); len(found) > 0 {
			return found, ttlOf(message), nil
		}
	}
	return nil, 0, &Error{name, dns.RcodeSuccess}
}

func addressesIn(message *dns.Msg, kind uint16) []netip.Addr {
	var found []netip.Addr
	for _, record := range message.Answer {
		var bytes []byte
		switch record := record.(type) {
		case *dns.A:
			bytes = record.A.To4()
		case *dns.AAAA:
			bytes = record.AAAA
		}
		// A record may be there without its data.
		if address, ok := netip.AddrFromSlice(bytes); ok && record.Header().Rrtype == kind && len(found) < addressesMost {
			found = append(found, address)
		}
	}
	return slices.Clip(found)
}

// ttlOf is how long all records of an answer hold, as far as they are believed.
func ttlOf(message *dns.Msg) time.Duration {
	ttl := mostTTL
	for _, record := range message.Answer {
		ttl = min(ttl, time.Duration(record.Header().Ttl)*time.Second)
	}
	return max(ttl, leastTTL)
}
