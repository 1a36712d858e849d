package serve

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"atoll/edge/control"
	"atoll/edge/traces"
)

const traceparent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"

// traced waits for this many spans.
func (w *world) traced(count int) []traces.Span {
	w.t.Helper()
	var found []traces.Span
	eventually(w.t, "spans are told", func() bool {
		must(w.t, w.edge.TellSeen(w))
		w.mu.Lock()
		defer w.mu.Unlock()
		found = append([]traces.Span{}, w.spans...)
		return len(found) >= count
	})
	return found
}

func TestARequestOfATraceIsToldWithWhatBecameOfIt(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.server("a.x", func(writer http.ResponseWriter, request *http.Request) {
		writer.Header().Set("X-Came", request.Header.Get("Traceparent"))
		io.Copy(io.Discard, request.Body)
		writer.WriteHeader(201)
		io.WriteString(writer, "hello")
	})
	w.policyWith(dict{"spans": true}, `{"action":"allow","methods":["POST"],"name":"posts"}`)
	client := w.client()
	got := do(t, client, "POST", "http://a.x/secret?token=1", "123", "traceparent", traceparent)
	expect(t, fmt.Sprint(got.StatusCode, " ", got.Header.Get("X-Came")), "201 "+traceparent)
	expect(t, do(t, client, "GET", "http://a.x/", "", "traceparent", traceparent).StatusCode, 403)
	expect(t, do(t, client, "POST", "http://a.x/", "").StatusCode, 201)
	expect(t, do(t, client, "POST", "http://a.x/", "", "traceparent", traceparent+"0").StatusCode, 201)
	spans := w.traced(2)
	expect(t, len(spans), 2)
	for i, want := range []string{
		"POST http a.x 80 201 allow posts 3 5 ",
		"GET http a.x 80 403 deny  0 ",
	} {
		one := spans[i]
		expect(t, one.Trace+"-"+one.Parent.Parent, traceparent[3:52])
		got := fmt.Sprint(one.Method, " ", one.Scheme, " ", one.Host, " ", one.Port, " ", one.Status, " ", one.Action, " ", one.Rule, " ",
			one.Sent, " ", one.Received, " ", one.Error)
		if !strings.HasPrefix(got, want) {
			t.Errorf("got %s, want %s", got, want)
		}
	}
	expect(t, spans[1].Error, "egress_denied")
}

func TestAnAnswerThatBreaksOffIsToldAsThat(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.server("a.x", func(writer http.ResponseWriter, _ *http.Request) {
		writer.Header().Set("Content-Length", "200000")
		io.WriteString(writer, strings.Repeat("x", 100_000))
	})
	w.policyWith(dict{"spans": true}, `{"action":"allow"}`)
	request, err := http.NewRequest("GET", "http://a.x/", http.NoBody)
	must(t, err)
	request.Header.Set("Traceparent", traceparent)
	response, err := w.client().Do(request)
	must(t, err)
	io.Copy(io.Discard, response.Body)
	response.Body.Close()
	span := w.traced(1)[0]
	expect(t, fmt.Sprint(span.Status, span.Error), "200aborted")
}

func TestNoSpanIsMadeThatNobodyExports(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.server("a.x", func(http.ResponseWriter, *http.Request) {})
	w.policy(`{"action":"allow"}`)
	expect(t, do(t, w.client(), "GET", "http://a.x/", "", "traceparent", traceparent).StatusCode, 200)
	must(t, w.edge.Handle(&control.Message{Op: "forget", Sandbox: "s"}, nil))
	must(t, w.edge.TellSpent(w))
	w.mu.Lock()
	defer w.mu.Unlock()
	expect(t, len(w.spans), 0)
}

func TestTheSpansOfASandboxThatIsForgottenAreTold(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.server("a.x", func(http.ResponseWriter, *http.Request) {})
	w.policyWith(dict{"spans": true}, `{"action":"allow"}`)
	found := w.edge.sandboxes["s"]
	found.spans.End(traces.Begin(traces.Parent{Trace: "t"}))
	must(t, w.edge.Handle(&control.Message{Op: "forget", Sandbox: "s"}, nil))
	eventually(t, "it is told", func() bool {
		must(t, w.edge.TellSpent(w))
		w.mu.Lock()
		defer w.mu.Unlock()
		return len(w.spans) == 1 && w.spans[0].Trace == "t"
	})
}

func TestARequestToAModelIsToldWithItsTokens(t *testing.T) {
	t.Parallel()
	w := newModels(t, usd(1))
	w.policyWith(dict{"spans": true, "models": dict{"allow": []string{"*"}, "budgets": []string{"sandbox:s"}}})
	w.provider("openai", func(writer http.ResponseWriter, _ *http.Request) { answerChat(writer) })
	const body = `{"model":"cheap","messages":[]}`
	ask := func(url string) int {
		return do(t, w.client(), "POST", modelsURL+url, body, "traceparent", traceparent).StatusCode
	}
	expect(t, ask("/openai/v1/chat/completions"), 200)
	expect(t, ask("/openai/v1/unknown"), 403)
	spans := w.traced(2)
	one, model := spans[0], spans[0].Model
	expect(t, fmt.Sprint(one.Host, one.Status, one.Action, one.Sent, one.Received, one.Error),
		fmt.Sprint("models.atoll.internal", 200, "", len(body), len(chatAnswer), ""))
	expect(t, fmt.Sprint(model.Operation, " ", model.Asked, " ", model.Provider, " ", model.Dialect, " ", model.Name, " ", model.Estimated),
		"chat cheap openai openai small false")
	expect(t, fmt.Sprint(model.Usage.Input, model.Usage.CacheRead, model.Usage.Output), "60 40 20")
	expect(t, fmt.Sprint(spans[1].Model == nil, spans[1].Error), "truemodel_path_not_priced")
	w.isFree()
}
