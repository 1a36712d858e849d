package serve

import (
	"context"
	"errors"
	"slices"
	"time"

	"atoll/edge/control"
	"atoll/edge/limit"
	"atoll/edge/models"
)

const (
	spansTogether = 10 // each has at most 3 KiB, since JSON may take six bytes for one
	seenTogether  = 20 // each has at most 1 KiB of path and of reason, and JSON may double it
	// The most bytes of counts in one message. One rule has at most 16 KiB.
	spentTogether = 40 << 10
	// How many messages about sandboxes that are forgotten wait for an owner that does not read.
	lastMost = 4096
)

// Owner hears of the edge's decisions.
type Owner interface {
	Send(message any) error
}

// alarm is why a sandbox is to be unplugged. It goes to each owner until it is settled: an owner may die before reading it.
type alarm struct {
	message control.Unplug
	isTold  bool
}

// Greet sends another owner everything that matters to it. No other message may go out meanwhile.
//
// It returns what is held of the budgets for models.
func (e *Edge) Greet() map[string]models.Amount {
	e.mu.Lock()
	e.last, e.ended = nil, nil // of sandboxes that are gone
	e.mu.Unlock()
	e.late.Store(false)
	for _, each := range e.all() {
		each.greet()
	}
	return e.models.Ledger.Greet()
}

// Known has the versions of the policies that are in force, by sandbox.
func (e *Edge) Known() map[string]int64 {
	known := map[string]int64{}
	for _, each := range e.all() {
		known[each.id] = 0
		if current := each.current(); current != nil {
			known[each.id] = current.version
		}
	}
	return known
}

// Tell sends an owner the decisions so far at once, and later ones once a second. It returns when the context ends or the
// owner takes no more. Unsent events then wait: decisions in a bounded room, and for each sandbox the counts of its limits
// and one reason to be unplugged. There is one owner at a time.
func (e *Edge) Tell(ctx context.Context, to Owner) {
	second := time.NewTicker(time.Second)
	defer second.Stop()
	news := e.news
	defer e.models.Ledger.Lose()
	defer e.late.Store(false) // what the next one cannot write waits here
	err := errors.Join(e.tellAlarms(to), e.tellAsks(to), e.tellModels(to))
	for err == nil {
		select {
		case <-e.models.Ledger.News:
			err = e.tellModels(to)
		case <-e.asking:
			err = e.tellAsks(to)
		case <-e.alarms:
			err = e.tellAlarms(to)
		case <-news:
			news = nil
			err = e.TellSeen(to)
		case <-second.C:
			e.models.Ledger.Tidy()
			if err = e.TellSpent(to); err == nil {
				err = e.TellSeen(to)
			}
			if err == nil {
				err = e.tellAskCounts(to)
			}
			news = e.news
		case <-ctx.Done():
			return
		}
	}
}

func (e *Edge) tellAlarms(to Owner) error {
	for _, each := range e.claimed() {
		if message := each.takeAlarm(); message != nil {
			if err := to.Send(*message); err != nil {
				return err
			}
		}
	}
	return nil
}

// TellSeen sends the decisions and the spans so far, of which the later ones of a second otherwise wait.
func (e *Edge) TellSeen(to Owner) error {
	e.telling.Lock()
	defer e.telling.Unlock()
	for _, each := range append(e.dead(), e.claimed()...) {
		if err := each.tellSeen(to); err != nil {
			return err
		}
		for _, message := range each.takeSpans() {
			if err := to.Send(message); err != nil {
				return err
			}
		}
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.buried = slices.DeleteFunc(e.buried, func(each *sandbox) bool { return each.seen.IsEmpty() })
	return nil
}

func (s *sandbox) tellSeen(to Owner) error {
	s.seen.Close()
	for {
		entries := s.seen.Take(seenTogether)
		if len(entries) == 0 {
			return nil
		}
		if err := to.Send(control.Seen{Op: "seen", Sandbox: s.id, Entries: entries}); err != nil {
			s.seen.Return(entries) // for the next owner
			return err
		}
	}
}

// TellSpent sends the counts of limits now, which otherwise wait for the next second.
func (e *Edge) TellSpent(to Owner) error {
	e.telling.Lock() // so that nothing is still being told when it returns
	defer e.telling.Unlock()
	e.mu.Lock()
	messages := e.last
	e.last = nil
	e.mu.Unlock()
	for _, each := range e.claimed() {
		messages = append(messages, each.takeSpent()...)
	}
	for _, message := range messages {
		if err := to.Send(message); err != nil {
			return err
		}
	}
	return nil
}

// claimed are the sandboxes that the owner has told of. It knows nothing of others yet.
func (e *Edge) claimed() []*sandbox {
	var found []*sandbox
	for _, each := range e.all() {
		each.mu.Lock()
		if each.isClaimed {
			found = append(found, each)
		}
		each.mu.Unlock()
	}
	return found
}

// dead are sandboxes that are forgotten, and have decisions to tell.
func (e *Edge) dead() []*sandbox {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.Clone(e.buried)
}

// bury has the last words of a sandbox told that is forgotten.
func (e *Edge) bury(one *sandbox, messages []any, ended []control.AskEnd) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if !one.seen.IsEmpty() && len(e.buried) < lastMost {
		e.buried = append(e.buried, one)
		wake(e.news)
	}
	if len(e.last)+len(messages) <= lastMost {
		e.last = append(e.last, messages...)
	}
	if len(e.ended)+len(ended) <= lastMost {
		e.ended = append(e.ended, ended...)
	}
	wake(e.asking)
}

func (s *sandbox) greet() {
	s.mu.Lock()
	s.isClaimed = false
	if s.alarm != nil {
		s.alarm.isTold = false
	}
	s.mu.Unlock()
	s.meters.Greet()
	s.asks.greet()
}

// claim says that the owner has told of the sandbox. The lock is held. An alarm that it was told before is settled.
func (s *sandbox) claim() {
	s.isClaimed = true
	wake(s.edge.asking)
	if s.alarm == nil {
		return
	}
	if s.alarm.isTold {
		s.alarm = nil
		return
	}
	wake(s.edge.alarms)
}

func (s *sandbox) takeAlarm() *control.Unplug {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.alarm == nil || s.alarm.isTold {
		return nil
	}
	s.alarm.isTold = true
	return &s.alarm.message
}

// takeSpent gives the counts of limits, in messages of bounded length.
func (s *sandbox) takeSpent() []any {
	var messages []any
	var together []limit.Told
	size := 0
	for _, each := range s.meters.Take() {
		const ofRule, ofPart = 120, 32
		long := ofRule + ofPart*len(each.Requests)
		if len(together) > 0 && size+long > spentTogether {
			messages = append(messages, control.Spent{Op: "spent", Sandbox: s.id, Spent: together})
			together, size = nil, 0
		}
		together, size = append(together, each), size+long
	}
	if len(together) > 0 {
		messages = append(messages, control.Spent{Op: "spent", Sandbox: s.id, Spent: together})
	}
	return messages
}

// takeSpans gives the spans, in messages of bounded length.
func (s *sandbox) takeSpans() []any {
	var messages []any
	for together := range slices.Chunk(s.spans.Take(), spansTogether) {
		messages = append(messages, control.Spans{Op: "spans", Sandbox: s.id, Spans: together})
	}
	return messages
}

// wake has somebody look who sleeps on a channel that holds one.
func wake(who chan struct{}) {
	select {
	case who <- struct{}{}:
	default: // it is known already that there is something
	}
}
