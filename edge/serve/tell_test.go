package serve

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"atoll/edge/control"
	"atoll/edge/gateway"
	"atoll/edge/seen"
)

// listener is an owner that notes when it hears how much.
type listener struct {
	began time.Time
	heard []string
}

func (l *listener) Send(message any) error {
	for _, entry := range message.(control.Seen).Entries {
		l.heard = append(l.heard, fmt.Sprintf("%d after %s", entry.Count, time.Since(l.began)))
	}
	return nil
}

func TestADecisionIsToldAtOnceAndManyOnceASecondOrWhenTheyAreAskedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hears := &listener{began: time.Now()}
		edge := &Edge{
			news: make(chan struct{}, 1), alarms: make(chan struct{}, 1), sandboxes: map[string]*sandbox{}, models: gateway.New(),
			room: seen.NewRoom(),
		}
		guest := newSandbox(edge, "s")
		guest.isClaimed = true
		edge.sandboxes["s"] = guest
		ctx, stop := context.WithCancel(t.Context())
		go edge.Tell(ctx, hears)
		for range 3 {
			time.Sleep(100 * time.Millisecond)
			guest.note(seen.Entry{Action: "allow"})
			synctest.Wait()
		}
		time.Sleep(2100 * time.Millisecond)
		guest.note(seen.Entry{Action: "allow"})
		synctest.Wait()
		time.Sleep(100 * time.Millisecond)
		guest.note(seen.Entry{Action: "allow"})
		must(t, edge.TellSeen(hears))
		stop()
		expect(t, fmt.Sprint(hears.heard), "[1 after 100ms 2 after 1s 1 after 2.4s 1 after 2.5s]")
	})
}

// ownerless is a world whose edge tells nobody anything yet.
func ownerless(t *testing.T) *world {
	w := newWorldOf(t, func(*world, context.Context) {})
	w.server("a.x", func(writer http.ResponseWriter, _ *http.Request) { io.WriteString(writer, "hello") })
	return w
}

// own has the world told everything until the function that it returns.
func (w *world) own() (leave func()) {
	w.edge.Greet()
	ctx, stop := context.WithCancel(w.t.Context())
	var telling sync.WaitGroup
	telling.Go(func() { w.edge.Tell(ctx, w) })
	return func() { stop(); telling.Wait() }
}

const limited = `{"action":"allow","limit":{"requests":100,"per_s":600,"total_bytes":1000000}}`

func TestWhatHappensWithoutAnOwnerWaitsForTheNextOneThatKnowsTheSandbox(t *testing.T) {
	t.Parallel()
	w := ownerless(t)
	rule := func() { w.policyWith(dict{"spent": []dict{{"rule": 0, "key": "k"}}}, limited) }
	rule()
	for range 3 {
		expect(t, do(t, w.client(), "GET", "http://a.x/", "").StatusCode, 200)
	}
	counted := func() (count int) {
		w.mu.Lock()
		defer w.mu.Unlock()
		for _, each := range w.entries {
			count += each.Count
		}
		return count
	}
	asked := float64(time.Now().UnixMilli()) / 1000
	leave := w.own()
	time.Sleep(1100 * time.Millisecond) // longer than it waits with what is not urgent
	expect(t, fmt.Sprint(counted(), len(w.spending("k").Requests)), "0 0")
	expect(t, fmt.Sprint(w.edge.Known()), "map[s:1]")
	rule()
	eventually(t, "all is told", func() bool { return counted() == 3 && sum(w.spending("k").Requests) == 3 })
	leave()
	w.mu.Lock()
	if at := w.entries[0].At; at < asked-60 || at > asked {
		t.Errorf("the first request was %v s before it asked", asked-at)
	}
	w.mu.Unlock()
	// The next one hears all that was counted, also what was told before.
	w.mu.Lock()
	w.spent = nil
	w.mu.Unlock()
	rule()
	expect(t, do(t, w.client(), "GET", "http://a.x/", "").StatusCode, 200)
	defer w.own()()
	rule()
	eventually(t, "all is told", func() bool { return counted() == 4 && sum(w.spending("k").Requests) == 4 })
}

func TestAnAlarmStopsTheSandboxAndIsToldToEachOwnerUntilItIsSettled(t *testing.T) {
	t.Parallel()
	w := ownerless(t)
	rules := []string{`{"action":"unplug","paths":["/trap"]}`, allow}
	w.policy(rules...)
	open := w.take("a.x", 80)
	hear(t, open, "GET / HTTP/1.1\r\nHost: a.x\r\n\r\n", "HTTP/1.1 200")
	if response, err := w.client().Get("http://a.x/trap"); err == nil {
		t.Errorf("it was answered: %s", response.Status)
	}
	eventually(t, "the other connection is reset", func() bool { return w.wasReset(open) })
	late := w.take("a.x", 80)
	eventually(t, "nothing else passes", func() bool { return w.wasReset(late) })
	for owner := range 2 {
		leave := w.own()
		expect(t, len(w.unplugged()), owner)
		w.policy(rules...) // it knows the sandbox, and not yet why it is to be unplugged
		eventually(t, "it is told", func() bool { return len(w.unplugged()) == owner+1 })
		leave()
	}
	expect(t, *w.unplugged()[0].Rule, 0)
	w.policy(rules...)
	expect(t, do(t, w.client(), "GET", "http://a.x/", "").StatusCode, 200)
	leave := w.own()
	w.policy(rules...)
	leave()
	expect(t, len(w.unplugged()), 2)
}

// deaf does not read until it is cut off.
type deaf struct{ cut chan struct{} }

func (d *deaf) Send(any) error {
	<-d.cut
	return errors.New("it is cut off")
}

func TestAnOwnerThatDoesNotReadStopsNobody(t *testing.T) {
	t.Parallel()
	w := ownerless(t)
	stopped := &deaf{make(chan struct{})}
	var telling sync.WaitGroup
	telling.Go(func() { w.edge.Tell(t.Context(), stopped) })
	w.policyWith(dict{"spent": []dict{{"rule": 0, "key": "k"}}}, limited)
	for range 5 {
		expect(t, do(t, w.client(), "GET", "http://a.x/", "").StatusCode, 200)
	}
	must(t, w.edge.Handle(&control.Message{Op: "forget", Sandbox: "s"}, nil))
	w.policyWith(dict{"spent": []dict{{"rule": 0, "key": "k"}}}, `{"action":"unplug"}`)
	if response, err := w.client().Get("http://a.x/"); err == nil {
		t.Errorf("it was answered: %s", response.Status)
	}
	close(stopped.cut)
	telling.Wait()
	defer w.own()()
	w.policy(allow)
	eventually(t, "it is told", func() bool { return len(w.unplugged()) == 1 })
}
