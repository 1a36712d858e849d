package serve

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"time"

	"atoll/channel"
	"atoll/edge/change"
	"atoll/edge/control"
	"atoll/edge/forms"
	"atoll/edge/limit"
	"atoll/edge/models"
	"atoll/edge/seen"
	"atoll/edge/traces"
	"atoll/policy"
)

const (
	connectionsMost = 1024
	exchangesMost   = 2048
	// A connection whose rules do not come after a change of the policy is cut.
	staleMost = 900 * time.Millisecond
)

// set is one version of a sandbox's policy.
type set struct {
	version  int64
	rules    []*policy.Rule
	observe  bool
	ceiling  []*policy.Rule // of the team; nil: it has none
	secrets  *change.Secrets
	canaries *forms.Finder
	spent    []limit.Spent
	models   *models.Access // nil: it has none
	spans    bool           // whether the owner exports them
}

func readPolicy(version int64, file *os.File) (*set, error) {
	var content control.Policy
	if err := channel.Content(file, &content); err != nil {
		return nil, err
	}
	rules, err := policy.ParseRules(content.Rules)
	if err != nil {
		return nil, err
	}
	ceiling, err := readCeiling(content.Ceiling)
	if err != nil {
		return nil, err
	}
	canaries := make([][]byte, len(content.Canaries))
	for i, each := range content.Canaries {
		canaries[i] = each
	}
	return &set{
		version: version, rules: rules, observe: content.Observe, ceiling: ceiling,
		secrets: change.NewSecrets(content.Secrets, content.Bound), canaries: forms.NewFinder(canaries),
		spent: content.Spent, models: content.Models,
		spans: content.Spans,
	}, nil
}

// readCeiling gives rules that are not nil if there is a ceiling, also one that allows nothing.
func readCeiling(content *control.Ceiling) ([]*policy.Rule, error) {
	if content == nil {
		return nil, nil
	}
	rules, err := policy.ParseRules(content.Rules)
	if err == nil && slices.ContainsFunc(rules, (*policy.Rule).HasChanges) {
		err = errors.New("a rule of the ceiling changes requests")
	}
	if err == nil && policy.AnyAsks(rules) {
		err = errors.New("a rule of the ceiling asks, and a ceiling only decides")
	}
	return rules, err
}

func nothingAllowed(version int64) *set {
	return &set{version: version, secrets: change.NewSecrets(nil, nil), canaries: forms.NewFinder(nil)}
}

// sandbox has the state of one sandbox. It shares nothing with another.
type sandbox struct {
	edge   *Edge
	id     string
	pool   *pool
	meters limit.Table
	seen   seen.Counter
	spans  traces.Keeper
	bodies *budget
	slots  chan struct{}
	asks   asks

	changing sync.Mutex // held while the policy, or the rules of a connection, change

	mu          sync.Mutex
	policy      *set // nil: it has not come yet
	connections map[mark]*connection
	gone        bool
	isClaimed   bool   // its owner has told of it
	alarm       *alarm // nil: nothing wants it unplugged
}

func newSandbox(edge *Edge, id string) *sandbox {
	return &sandbox{
		edge: edge, id: id, pool: newPool(), bodies: newBudget(), slots: make(chan struct{}, exchangesMost),
		connections: map[mark]*connection{}, asks: asks{sandbox: id, news: edge.asking}, seen: seen.Counter{Room: edge.room},
	}
}

// setPolicy replaces the policy. Open connections wait for their new rules, unless they have them already.
func (s *sandbox) setPolicy(next *set) error {
	s.changing.Lock()
	defer s.changing.Unlock()
	s.asks.keep(next.rules) // before the owner may hear of asks again
	s.mu.Lock()
	previous := s.policy
	s.policy = next
	s.claim()
	var open []*connection
	for _, each := range s.connections {
		each.await()
		open = append(open, each)
	}
	s.mu.Unlock()
	s.pool.rotate()
	s.meters.Keep(next.rules)
	s.meters.Resume(next.rules, next.spent, time.Now())
	if previous != nil {
		previous.secrets.Wipe()
	}
	var faults error
	for _, each := range open {
		if each.given.version == next.version {
			faults = errors.Join(faults, each.apply(next))
		}
	}
	return faults
}

// knows tells whether it has this version of its policy, or a newer one.
func (s *sandbox) knows(version int64) bool {
	if s == nil {
		return false
	}
	current := s.current()
	return current != nil && version <= current.version
}

func (s *sandbox) take(came *taken) error {
	guest := came.guest
	to := policy.Destination{Address: came.address, Port: came.port}
	if came.name != "" {
		name, err := policy.CanonicalHost(came.name)
		if err != nil {
			guest.Close()
			return fmt.Errorf("connection %s: %w", guest.mark.id, err)
		}
		to.Name = name
	}
	ctx, cancel := context.WithCancelCause(context.Background())
	made := &connection{
		sandbox: s, to: to, guest: guest, ctx: ctx, cancel: cancel, exchanges: map[*exchange]struct{}{}, scheme: "http",
	}
	made.await()
	s.mu.Lock()
	_, twice := s.connections[guest.mark]
	if s.alarm != nil {
		s.mu.Unlock()
		cancel(nil)
		guest.reset(func() {})
		return nil
	}
	if s.gone || twice || len(s.connections) >= connectionsMost {
		s.mu.Unlock()
		cancel(nil)
		guest.Close()
		return fmt.Errorf(
			"connection %s: the sandbox has %d connections open, or this one twice", guest.mark.id, connectionsMost)
	}
	s.connections[guest.mark] = made
	s.mu.Unlock()
	err := made.setRules(came.rules)
	go made.run()
	return err
}

func (s *sandbox) connection(which mark) *connection {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.connections[which]
}

// lose ends the connections of a carrier that is gone.
func (s *sandbox) lose(from Carrier) {
	s.mu.Lock()
	var lost []*connection
	for which, each := range s.connections {
		if which.from == from {
			lost = append(lost, each)
		}
	}
	s.mu.Unlock()
	for _, each := range lost {
		each.end(errors.New("the process that carries it has ended"))
	}
}

func (s *sandbox) current() *set {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.policy
}

func (s *sandbox) drop(connection *connection) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if which := connection.guest.mark; s.connections[which] == connection {
		delete(s.connections, which)
	}
}

// forget ends all connections, on both sides, and erases the secrets.
func (s *sandbox) forget() {
	s.mu.Lock()
	s.gone = true
	open := make([]*connection, 0, len(s.connections))
	for _, each := range s.connections {
		open = append(open, each)
	}
	last := s.policy
	s.mu.Unlock()
	for _, each := range open {
		each.end(errors.New("the sandbox is forgotten"))
	}
	s.edge.bury(s, append(s.takeSpent(), s.takeSpans()...), s.asks.close())
	s.pool.kill()
	if last != nil {
		last.secrets.Wipe()
	}
}

// note counts a decision, which goes to the owner soon.
func (s *sandbox) note(entry seen.Entry) {
	s.seen.Note(entry)
	wake(s.edge.news)
}

var errUnplugged = errors.New("the sandbox is unplugged")

// unplug lets nothing pass any more until it is settled, with or without an owner. The caller ends the connection that
// caused it.
func (s *sandbox) unplug(by *connection, rule *policy.Rule, reason string) {
	message := control.Unplug{Op: "unplug", Sandbox: s.id, Reason: reason}
	if rule != nil {
		message.Rule = &rule.Index
	}
	s.mu.Lock()
	if s.alarm == nil {
		s.alarm = &alarm{message: message}
	}
	others := make([]*connection, 0, len(s.connections))
	for _, each := range s.connections {
		if each != by {
			others = append(others, each)
		}
	}
	s.mu.Unlock()
	wake(s.edge.alarms)
	for _, each := range others {
		each.reset(errUnplugged)
	}
}
