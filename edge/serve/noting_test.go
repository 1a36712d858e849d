package serve

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"atoll/edge/control"
	"atoll/edge/seen"
)

// crowdedWorld has no owner, and room for a few lines.
func crowdedWorld(t *testing.T, bytes int64) *world {
	w := newWorldOf(t, func(*world, context.Context) {}, func(e *Edge) { e.room = seen.RoomOf(bytes) })
	w.server("a.x", func(writer http.ResponseWriter, _ *http.Request) { io.WriteString(writer, "hello") })
	w.policy(allow)
	return w
}

// fill notes lines until no more are kept.
func (w *world) fill() {
	w.t.Helper()
	w.edge.sandboxes["s"].seen.Return([]seen.Entry{{
		At: 5, Until: 6, Action: "allow", Host: strings.Repeat("x", 1000), Count: 1,
	}})
}

func TestWhatCannotBeNotedIsRefusedUntilAnOwnerHasTakenTheRest(t *testing.T) {
	t.Parallel()
	w := crowdedWorld(t, 8000)
	expect(t, do(t, w.client(), "GET", "http://a.x/", "").StatusCode, 200)
	w.fill()
	got := do(t, w.client(), "GET", "http://a.x/", "")
	expect(t, got.StatusCode, 503)
	expect(t, got.Header.Get("Retry-After"), "10")
	contains(t, got.text, "egress_unnoted")
	raw := w.take("a.x", 22)
	fmt.Fprint(raw, "SSH-2.0-x\r\n")
	eventually(t, "what is no HTTP is reset", func() bool { return w.wasReset(raw) })
	defer w.own()()
	w.policy(allow)
	eventually(t, "it passes again", func() bool {
		return do(t, w.client(), "GET", "http://a.x/", "").StatusCode == 200
	})
	w.mu.Lock()
	defer w.mu.Unlock()
	var told []string
	for _, each := range w.entries {
		told = append(told, fmt.Sprintf("%d %s %s", each.Count, each.Action, each.Reason))
	}
	contains(t, strings.Join(told, "; "), "2 deny refused, as there is no room to note it")
	expect(t, fmt.Sprint(w.entries[0].At, w.entries[0].Until), "5 6")
}

func TestAnOwnerThatCannotWriteHasRequestsRefused(t *testing.T) {
	t.Parallel()
	w := crowdedWorld(t, 64<<20)
	status := func() int { return do(t, w.client(), "GET", "http://a.x/", "").StatusCode }
	late := func(is bool) { must(t, w.edge.Handle(&control.Message{Op: "late", Late: is}, nil)) }
	leave := w.own()
	w.policy(allow)
	late(true)
	expect(t, status(), 503)
	late(false)
	expect(t, status(), 200)
	late(true)
	leave()
	expect(t, status(), 200) // it is kept for the next one
}

func TestTheLastDecisionsAboutASandboxAreToldToTheNextOwner(t *testing.T) {
	t.Parallel()
	w := crowdedWorld(t, 64<<20)
	expect(t, do(t, w.client(), "GET", "http://a.x/", "").StatusCode, 200)
	must(t, w.edge.Handle(&control.Message{Op: "forget", Sandbox: "s"}, nil))
	defer w.own()()
	eventually(t, "it is told", func() bool {
		w.mu.Lock()
		defer w.mu.Unlock()
		return len(w.entries) == 1
	})
	eventually(t, "it is gone", func() bool { return len(w.edge.dead()) == 0 })
}
