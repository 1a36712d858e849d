package home

import (
	"encoding/json"
	"strconv"
	"sync"
	"time"

	"atoll/edge/seen"
	"atoll/relay/control"
)

const (
	logsMost = 32
	textMost = 1024
	// So many decisions are put into a message, if they are short.
	together = 64
	// The shortest time between reports of decisions about one guest. Equal decisions in between are counted.
	toldEach = 200 * time.Millisecond
	// Of the entries in one message. One has at most 12 KiB.
	piecesMost = 40 << 10
)

// events are the messages for the owner. An owner that does not read them, or is missing, stops nobody until the room for
// decisions is full. The others have a bound: for each link one reason to be cut off, and one wake.
type events struct {
	mu      sync.Mutex
	changed *sync.Cond
	owner   int64 // tells owners apart; 0: there was none yet
	closed  bool
	room    *seen.Room

	fresh   map[*news]struct{} // those that have something to tell
	reaches map[int64]*reaching
	untold  []*reaching
	last    int64   // id of a reach
	asked   []int64 // by the owner: to be told all that was decided until then
	parted  string  // the pair of a channel to the edge that is gone; empty: none is to be told
	logs    []string
	dropped int // logs for which there was no room
}

func newEvents() *events {
	made := &events{room: seen.NewRoom(), fresh: map[*news]struct{}{}, reaches: map[int64]*reaching{}}
	made.changed = sync.NewCond(&made.mu)
	return made
}

// own sends to another owner from now on, also messages that the earlier owner may have missed or has not settled.
func (e *events) own(links []*Link) int64 {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.owner++
	for _, link := range links {
		if link.news.unplug.isSet || link.news.wake.isSet {
			e.fresh[link.news] = struct{}{}
		}
	}
	e.asked, e.parted = nil, "" // of the one before; the answer to hello says whether there is an edge
	e.untold = e.untold[:0]
	for _, each := range e.reaches {
		e.untold = append(e.untold, each)
	}
	e.changed.Broadcast()
	return e.owner
}

// next waits for something to tell. It gives nothing when there is another owner, or it is over.
func (e *events) next(owner int64) []any {
	e.mu.Lock()
	defer e.mu.Unlock()
	for {
		if e.closed || e.owner != owner {
			return nil
		}
		if messages := e.take(); len(messages) > 0 {
			return messages
		}
		e.changed.Wait()
	}
}

// take takes the next messages: those that others wait for, and then one link's. The lock is held.
func (e *events) take() []any {
	var messages []any
	for _, each := range e.untold {
		messages = append(messages, each.message)
	}
	e.untold = nil
	if e.parted != "" {
		messages = append(messages, control.Parted{Op: "parted", Pair: e.parted})
		e.parted = ""
	}
	for _, text := range e.logs {
		messages = append(messages, control.Log{Op: "log", Text: text})
	}
	if e.dropped > 0 {
		text := "more was to be logged than there was room for: " + strconv.Itoa(e.dropped)
		messages = append(messages, control.Log{Op: "log", Text: text})
	}
	e.logs, e.dropped = nil, 0
	for each := range e.fresh {
		if len(messages) > 0 {
			return messages
		}
		delete(e.fresh, each)
		messages = each.take()
	}
	if len(messages) == 0 {
		for _, id := range e.asked {
			messages = append(messages, control.Answer{Op: "answer", ID: id})
		}
		e.asked = nil
	}
	return messages
}

// tellAll sends the owner all decisions so far, and then answers.
func (e *events) tellAll(id int64, links []*Link) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, link := range links {
		if !link.news.since.IsZero() {
			link.news.due()
		}
	}
	e.asked = append(e.asked, id)
	e.changed.Broadcast()
}

// disown tells nobody anything until there is another owner.
func (e *events) disown() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.owner++
	e.changed.Broadcast()
}

// part has the owner told that nothing judges requests any more, or that nothing leads there.
func (e *events) part(pair string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.parted = pair
	e.changed.Broadcast()
}

func (e *events) log(text string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if len(e.logs) >= logsMost {
		e.dropped++
		return
	}
	e.logs = append(e.logs, control.Short(text, textMost))
	e.changed.Broadcast()
}

func (e *events) close() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.closed = true
	e.changed.Broadcast()
}

// news are the events of one link. The lock of all events guards it.
type news struct {
	events *events
	link   string
	seen   seen.Counter
	since  time.Time // of the first decision that is not told; zero: there is none
	told   time.Time
	isDue  bool
	later  *time.Timer
	unplug sticky
	wake   sticky
}

func newNews(events *events, link string) *news {
	return &news{events: events, link: link, seen: seen.Counter{Room: events.room}}
}

// sticky goes to each owner until it is settled: an owner may die with it unread.
type sticky struct {
	text  string
	isSet bool
	told  int64 // the owner
}

func (s *sticky) set(text string) {
	if !s.isSet {
		*s = sticky{text: control.Short(text, textMost), isSet: true}
	}
}

// isFor tells whether an owner is to be told, and takes it as told.
func (s *sticky) isFor(owner int64) bool {
	if !s.isSet || s.told == owner {
		return false
	}
	s.told = owner
	return true
}

// note keeps a decision. False is that there is no room for it: it is only counted.
func (n *news) note(entry seen.Entry) bool {
	n.events.mu.Lock()
	defer n.events.mu.Unlock()
	defer n.begin()
	if n.seen.IsFull() {
		n.seen.Refuse(entry)
		return false
	}
	n.seen.Note(entry)
	return true
}

// begin has the owner told soon. The lock is held.
func (n *news) begin() {
	if !n.since.IsZero() {
		return
	}
	n.since = time.Now()
	if wait := n.told.Add(toldEach).Sub(n.since); wait > 0 {
		n.later = time.AfterFunc(wait, func() {
			n.events.mu.Lock()
			defer n.events.mu.Unlock()
			n.due()
		})
		return
	}
	n.due()
}

func (n *news) due() {
	n.isDue = !n.since.IsZero()
	n.mark()
}

func (n *news) mark() {
	if n.events.closed {
		return
	}
	n.events.fresh[n] = struct{}{}
	n.events.changed.Broadcast()
}

// change changes one of the sticky messages.
func (n *news) change(how func()) {
	n.events.mu.Lock()
	defer n.events.mu.Unlock()
	how()
	n.mark()
}

// forget drops the unsent messages about a link that is gone.
func (n *news) forget() {
	n.events.mu.Lock()
	defer n.events.mu.Unlock()
	n.unplug, n.wake = sticky{}, sticky{}
	if n.seen.IsEmpty() {
		delete(n.events.fresh, n)
		return
	}
	n.isDue = true // its last decisions still go to the owner
	n.mark()
}

// take takes the next messages. What was decided comes first.
func (n *news) take() []any {
	var messages []any
	owner := n.events.owner
	if n.isDue || n.unplug.isSet {
		n.close()
	}
	if entries := n.piece(); len(entries) > 0 {
		messages = append(messages, decided{control.Told{Op: "told", Link: n.link, Entries: entries}, n})
		if n.seen.Waits() {
			n.mark()
			return messages
		}
	}
	if n.unplug.isFor(owner) {
		messages = append(messages, control.Unplug{Op: "unplug", Link: n.link, Reason: n.unplug.text})
	}
	if n.wake.isFor(owner) {
		messages = append(messages, control.Wake{Op: "wake", Link: n.link, From: n.wake.text})
	}
	return messages
}

// decided is a message that is kept for the next owner if this one does not take it.
type decided struct {
	control.Told
	news *news
}

// close ends the moment in which equal decisions are counted.
func (n *news) close() {
	if n.since.IsZero() {
		return
	}
	if n.later != nil {
		n.later.Stop()
	}
	n.since, n.told, n.isDue = time.Time{}, time.Now(), false
	n.seen.Close()
}

// piece takes decisions for a message of bounded length.
func (n *news) piece() []seen.Entry {
	entries := n.seen.Take(together)
	size := 0
	for i := range entries {
		text, err := json.Marshal(&entries[i])
		if err != nil {
			continue
		}
		if size += len(text); size > piecesMost && i > 0 {
			n.seen.Return(entries[i:])
			return entries[:i]
		}
	}
	return entries
}

// restore keeps the decisions of messages that were not sent.
func (e *events) restore(messages []any) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for i := len(messages) - 1; i >= 0; i-- {
		if told, ok := messages[i].(decided); ok {
			told.news.seen.Return(told.Entries)
			told.news.mark()
		}
	}
}
