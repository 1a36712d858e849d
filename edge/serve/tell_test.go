package serve

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"atoll/edge/control"
	"atoll/edge/seen"
)

// listener is a supervisor that notes when it hears how much.
type listener struct {
	Supervisor
	began time.Time
	heard []string
}

func (l *listener) Send(message any) error {
	for _, entry := range message.(control.Seen).Entries {
		l.heard = append(l.heard, fmt.Sprintf("%d after %s", entry.Count, time.Since(l.began)))
	}
	return nil
}

func TestADecisionIsToldAtOnceAndManyOnceASecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hears := &listener{began: time.Now()}
		edge := &Edge{supervisor: hears, news: make(chan struct{}, 1), sandboxes: map[string]*sandbox{}}
		guest := newSandbox(edge, "s")
		edge.sandboxes["s"] = guest
		ctx, stop := context.WithCancel(t.Context())
		go edge.tell(ctx)
		for range 3 {
			time.Sleep(100 * time.Millisecond)
			guest.note(seen.Entry{Action: "allow"})
			synctest.Wait()
		}
		time.Sleep(2100 * time.Millisecond)
		guest.note(seen.Entry{Action: "allow"})
		synctest.Wait()
		stop()
		expect(t, fmt.Sprint(hears.heard), "[1 after 100ms 2 after 1s 1 after 2.4s]")
	})
}
