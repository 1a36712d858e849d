package serve

import (
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"atoll/edge/control"
)

const asking = `{"action":"ask","name":"pay"}`

// heard are the asks as an owner hears of them. The world's lock guards them.
type heard struct {
	asks   []control.Ask
	bodies map[string][]byte
	counts []control.AskCount
	ends   []control.AskEnd
}

func (h *heard) hear(message any) {
	switch told := message.(type) {
	case control.AskBody:
		if h.bodies == nil {
			h.bodies = map[string][]byte{}
		}
		if told.Offset == 0 {
			h.bodies[told.Ask] = nil
		}
		if len(told.Part) > 32<<10 || told.Offset != len(h.bodies[told.Ask]) {
			panic(fmt.Sprint("a piece of ", len(told.Part), " at ", told.Offset))
		}
		h.bodies[told.Ask] = append(h.bodies[told.Ask], told.Part...)
	case control.Ask:
		if len(h.bodies[told.Ask]) != told.BodyBytes {
			panic("the body did not come before the ask")
		}
		h.asks = append(h.asks, told)
	case control.AskCount:
		h.counts = append(h.counts, told)
	case control.AskEnd:
		h.ends = append(h.ends, told)
	}
}

// asks waits until so many were told, and returns them.
func (w *world) asks(count int) []control.Ask {
	w.t.Helper()
	eventually(w.t, fmt.Sprint(count, " asks are told"), func() bool {
		w.mu.Lock()
		defer w.mu.Unlock()
		return len(w.asked.asks) >= count
	})
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.asked.asks)
}

// ask is the ask that was told last.
func (w *world) ask(count int) control.Ask {
	w.t.Helper()
	found := w.asks(count)
	if len(found) != count {
		w.t.Fatalf("there are %d asks, not %d", len(found), count)
	}
	return found[count-1]
}

// ends waits until so many asks have ended, and returns how.
func (w *world) ends(count int) []string {
	w.t.Helper()
	eventually(w.t, fmt.Sprint(count, " ends are told"), func() bool {
		w.mu.Lock()
		defer w.mu.Unlock()
		return len(w.asked.ends) >= count
	})
	w.mu.Lock()
	defer w.mu.Unlock()
	var told []string
	for _, each := range w.asked.ends {
		told = append(told, fmt.Sprintf("%s %d %d", each.Outcome, each.Passed, each.Refused))
	}
	return told
}

// counted waits until an ask has so many requests.
func (w *world) counted(count int) {
	w.t.Helper()
	eventually(w.t, fmt.Sprint(count, " requests are held"), func() bool {
		asks := &w.edge.all()[0].asks
		asks.mu.Lock()
		defer asks.mu.Unlock()
		sum := 0
		for _, each := range asks.open {
			sum += len(each.waiting)
		}
		return sum == count && asks.held == count
	})
}

func (w *world) answer(to control.Ask, more control.Message) string {
	more.Op, more.Sandbox, more.Ask, more.Digest = "answer", to.Sandbox, to.Ask, to.Digest
	if refused := w.edge.Answer(&more); refused != nil {
		return refused.Error
	}
	return ""
}

func (w *world) approves(to control.Ask) {
	w.t.Helper()
	expect(w.t, w.answer(to, control.Message{Action: "allow"}), "")
}

// noted waits until these decisions were told, and no others.
func (w *world) noted(wanted string) {
	w.t.Helper()
	told := func() string {
		w.mu.Lock()
		defer w.mu.Unlock()
		counts := map[string]int{}
		for _, each := range w.entries {
			counts[each.Action+": "+each.Reason] += each.Count
		}
		var all []string
		for what, count := range counts {
			all = append(all, fmt.Sprint(count, " ", what))
		}
		slices.Sort(all)
		return strings.Join(all, "\n")
	}
	end := time.Now().Add(5 * time.Second)
	for told() != wanted && time.Now().Before(end) {
		time.Sleep(5 * time.Millisecond)
	}
	expect(w.t, told(), wanted)
}

// later sends a request meanwhile.
func later(t testing.TB, client *http.Client, method, url, body string, headers ...string) <-chan reply {
	got := make(chan reply, 1)
	request, err := http.NewRequest(method, url, strings.NewReader(body))
	must(t, err)
	for i := 0; i < len(headers); i += 2 {
		request.Header.Add(headers[i], headers[i+1])
	}
	go func() {
		response, err := client.Do(request)
		if err != nil {
			got <- reply{&http.Response{}, err.Error()} // it was broken off
			return
		}
		defer response.Body.Close()
		text, err := io.ReadAll(response.Body)
		if err != nil {
			got <- reply{&http.Response{}, err.Error()}
			return
		}
		got <- reply{response, string(text)}
	}()
	return got
}

func echoing(writer http.ResponseWriter, request *http.Request) {
	body, _ := io.ReadAll(request.Body)
	fmt.Fprintf(writer, "%s %s %s %s", request.Method, request.RequestURI, request.Header.Get("X-Note"), body)
}

func askWorld(t *testing.T, rules ...string) *world {
	t.Helper()
	w := newWorld(t)
	w.secure("a.x", true, echoing)
	w.policy(rules...)
	return w
}
