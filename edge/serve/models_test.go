package serve

import (
	"bufio"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"atoll/edge/models"
)

func TestARequestToAModelGetsTheKeyAndIsBilled(t *testing.T) {
	t.Parallel()
	w := newModels(t, usd(1))
	w.provider("openai", func(writer http.ResponseWriter, request *http.Request) {
		expect(t, request.URL.Path, "/v1/chat/completions")
		expect(t, request.Host, "openai.example:443")
		expect(t, request.Header["Authorization"], "[Bearer sk-first-key]")
		for _, name := range []string{"X-Api-Key", "Cookie", "X-Forwarded-For", "Openai-Organization", "Accept-Encoding"} {
			expect(t, len(request.Header[name]), 0)
		}
		expect(t, request.Header.Get("X-Stainless-Lang"), "python")
		body := said(request)
		expect(t, fmt.Sprint(body["model"], " ", body["max_completion_tokens"]), "small 32768")
		writer.Header().Set("X-Echo", request.Header.Get("Authorization"))
		writer.Header().Set("Set-Cookie", "a=b")
		answerChat(writer)
	})
	got := do(t, w.client(), "POST", modelsURL+"/openai/v1/chat/completions", `{"model":"cheap","messages":[]}`,
		"Authorization", "Bearer atoll", "X-Api-Key", "atoll", "Cookie", "c=d", "X-Forwarded-For", "1.2.3.4",
		"OpenAI-Organization", "mine", "X-Stainless-Lang", "python", "Accept-Encoding", "gzip")
	expect(t, got.StatusCode, 200)
	expect(t, got.text, chatAnswer)
	expect(t, got.Header.Get("X-Echo"), "Bearer [secret of openai]")
	expect(t, got.Header.Get("Set-Cookie"), "")
	contains(t, got.Header.Get("X-Atoll-Budget-Left-Usd"), "1.000000")
	expect(t, got.Header.Get("X-Atoll-Budget-Left-Tokens"), "")
	bill := w.bill(1)
	const cost = 60*1000 + 40*100 + 20*5000
	expect(t, fmt.Sprint(bill.Asked, bill.Provider, bill.Model, bill.Sandbox, bill.Status, bill.Ending, bill.Estimated, bill.Nanos, bill.Budgets),
		fmt.Sprint("cheap", "openai", "small", "s", 200, "whole", false, cost, []string{"sandbox:s"}))
	w.isFree()
}

func TestAModelOfAnthropicGetsItsOwnKey(t *testing.T) {
	t.Parallel()
	w := newModels(t, usd(1))
	w.provider("anthropic", func(writer http.ResponseWriter, request *http.Request) {
		expect(t, request.URL.Path, "/v1/messages")
		expect(t, request.URL.RawQuery, "beta=true")
		expect(t, request.Header["X-Api-Key"], "[sk-ant-key]")
		expect(t, len(request.Header["Authorization"]), 0)
		expect(t, request.Header.Get("Anthropic-Version"), "2023-06-01")
		writer.Header().Set("Content-Type", "text/event-stream")
		for _, each := range []string{
			`event: message_start` + "\n" + `data: {"type":"message_start","message":{"usage":{"input_tokens":10,"cache_read_input_tokens":5,"output_tokens":1}}}`,
			`event: message_delta` + "\n" + `data: {"type":"message_delta","usage":{"output_tokens":7}}`,
		} {
			io.WriteString(writer, each+"\n\n")
		}
	})
	got := do(t, w.client(), "POST", modelsURL+"/anthropic/v1/messages?beta=true", `{"model":"claude","max_tokens":50,"stream":true}`,
		"Anthropic-Version", "2023-06-01", "X-Api-Key", "atoll", "Authorization", "Bearer atoll")
	contains(t, got.text, "message_delta")
	bill := w.bill(1)
	expect(t, bill.Nanos, 10*1000+5*100+7*5000)
	expect(t, bill.Estimated, false)
}

func TestAStreamPassesAtOnceAndItsUsageIsTakenOut(t *testing.T) {
	t.Parallel()
	w := newModels(t, usd(1))
	next := make(chan struct{})
	w.provider("openai", func(writer http.ResponseWriter, request *http.Request) {
		options := said(request)["stream_options"].(map[string]any)
		expect(t, options["include_usage"], true)
		writer.Header().Set("Content-Type", "text/event-stream; charset=utf-8")
		for i := range 3 {
			fmt.Fprintf(writer, "data: {\"choices\":[{\"delta\":{\"content\":\"piece %d\"}}],\"usage\":null}\n\n", i)
			writer.(http.Flusher).Flush()
			<-next
		}
		io.WriteString(writer, "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":9,\"completion_tokens\":3}}\n\ndata: [DONE]\n\n")
	})
	request, err := http.NewRequest("POST", modelsURL+"/openai/v1/chat/completions", strings.NewReader(`{"model":"small","stream":true}`))
	must(t, err)
	response, err := w.client().Do(request)
	must(t, err)
	defer response.Body.Close()
	lines := bufio.NewScanner(response.Body)
	for i := range 3 {
		lines.Scan()
		contains(t, lines.Text(), fmt.Sprintf("piece %d", i)) // before the next one is sent
		lines.Scan()
		next <- struct{}{}
	}
	rest := ""
	for lines.Scan() {
		rest += lines.Text() + "\n"
	}
	expect(t, rest, "data: [DONE]\n\n")
	expect(t, w.bill(1).Nanos, 9*1000+3*5000)
}

func TestAnotherKeyAndAnotherModelServeInstead(t *testing.T) {
	t.Parallel()
	w := newModels(t, usd(1))
	var firsts, spares atomic.Int32
	var status atomic.Int32
	w.provider("openai", func(writer http.ResponseWriter, request *http.Request) {
		firsts.Add(1)
		io.Copy(io.Discard, request.Body)
		if status.Load() == 0 && request.Header.Get("Authorization") == "Bearer sk-second-key" {
			answerChat(writer)
			return
		}
		writer.WriteHeader(max(int(status.Load()), 429))
	})
	w.provider("spare", func(writer http.ResponseWriter, request *http.Request) {
		spares.Add(1)
		expect(t, request.URL.Path, "/api/v1/chat/completions")
		expect(t, request.Header.Get("Authorization"), "Bearer sk-spare-key")
		expect(t, said(request)["model"], "little")
		answerChat(writer)
	})
	ask := func() reply {
		return do(t, w.client(), "POST", modelsURL+"/openai/v1/chat/completions", `{"model":"cheap"}`)
	}
	expect(t, ask().text, chatAnswer)
	expect(t, fmt.Sprint(firsts.Load(), spares.Load(), w.bill(1).Model), fmt.Sprint(2, 0, "small"))
	for i, code := range []int32{500, 429, 503} {
		status.Store(code)
		expect(t, ask().text, chatAnswer)
		expect(t, fmt.Sprint(spares.Load(), w.bill(i+2).Model), fmt.Sprint(i+1, "little"))
	}
	w.named("provider openai", "127.0.0.1:1") // nobody listens there
	client := w.client()
	w.edge.sandboxes["s"].pool.rotate()
	expect(t, do(t, client, "POST", modelsURL+"/openai/v1/chat/completions", `{"model":"cheap"}`).text, chatAnswer)
	got := do(t, client, "POST", modelsURL+"/openai/v1/chat/completions", `{"model":"big"}`)
	expect(t, got.StatusCode, 502)
	contains(t, got.text, `"code":"model_unreachable"`)
	w.isFree()
}

func TestWhatIsNotAllowedIsRefusedInTheProvidersForm(t *testing.T) {
	t.Parallel()
	w := newModels(t, usd(0.001), "cheap", "anthropic/*")
	for _, each := range []string{"openai", "anthropic", "spare"} {
		w.provider(each, func(http.ResponseWriter, *http.Request) { t.Error("it arrived") })
	}
	for _, c := range []struct {
		path, body string
		status     int
		want       string
	}{
		{"/openai/v1/chat/completions", `{"model":"big"}`, 403, `"code":"model_not_allowed"`},
		{"/openai/v1/chat/completions", `{"model":"anthropic/claude"}`, 403, `"code":"model_not_allowed"`},
		{"/openai/v1/chat/completions", `{"model":"cheap","model":"big"}`, 400, `"code":"model_bad_request"`},
		{"/openai/v1/chat/completions", `{"model":"cheap","max_tokens":1000}`, 429, `budget sandbox:s`},
		{"/openai/v1/responses", `{"model":"cheap","background":true}`, 400, `background`},
		{"/openai/v1/files", `{}`, 403, `"code":"model_path_not_priced"`},
		{"/anthropic/v1/files", `{}`, 403, `"permission_error"`},
		{"/anthropic/v1/messages", `{"model":"unknown","max_tokens":1}`, 403, `price of unknown is not known`},
		{"/anthropic/v1/messages", `{"model":"claude","max_tokens":1000}`, 429, `"type":"rate_limit_error"`},
		{"/other/v1/messages", `{}`, 404, `model_path_unknown`}, {"/", ``, 404, `model_path_unknown`},
		{"/openai/v1/../v1/responses", `{}`, 404, `model_path_unknown`},
	} {
		got := do(t, w.client(), "POST", modelsURL+c.path, c.body)
		expect(t, fmt.Sprint(c.path, " ", got.StatusCode), fmt.Sprint(c.path, " ", c.status))
		contains(t, got.text, c.want)
		if c.status == 429 {
			expect(t, got.Header.Get("X-Atoll-Budget-Left-Usd"), "0.001000")
			expect(t, got.Header.Get("X-Should-Retry"), "false")
		}
	}
	list := do(t, w.client(), "GET", modelsURL+"/openai/v1/models", "")
	contains(t, list.text, `"id":"cheap"`)
	if strings.Contains(list.text, "big") {
		t.Error("a model that may not be used is listed:", list.text)
	}
	contains(t, do(t, w.client(), "GET", modelsURL+"/anthropic/v1/models", "").text, `"id":"claude"`)
	expect(t, do(t, w.client(), "POST", modelsURL+"/openai/v1/responses", `{}`, "Content-Encoding", "gzip").StatusCode, 400)
	w.policyWith(dict{})
	expect(t, do(t, w.client(), "POST", "http://a.x/openai/v1/responses", `{}`).StatusCode, 403)
	w.isFree()
	expect(t, len(w.purse.billed()), 0)
}

func TestWithoutALimitOtherPathsPassAndNothingIsBounded(t *testing.T) {
	t.Parallel()
	w := newModels(t, endless)
	w.provider("openai", func(writer http.ResponseWriter, request *http.Request) {
		text, _ := io.ReadAll(request.Body)
		fmt.Fprint(writer, request.Method, " ", request.URL.Path, " ", string(text))
	})
	expect(t, do(t, w.client(), "POST", modelsURL+"/openai/v1/files", "plain").text, "POST /v1/files plain")
	expect(t, do(t, w.client(), "GET", modelsURL+"/openai/v1/files", "").text, "GET /v1/files ")
	expect(t, do(t, w.client(), "POST", modelsURL+"/openai/v1/responses", `{"model":"new"}`).text, `POST /v1/responses {"model":"new"}`)
	bill := w.bill(1)
	expect(t, fmt.Sprint(bill.Model, bill.Nanos, bill.Estimated), fmt.Sprint("new", 0, true))
}

func TestALowBudgetBoundsTheOutput(t *testing.T) {
	t.Parallel()
	w := newModels(t, usd(0.001)) // 200 tokens of output
	var bound atomic.Int64
	w.provider("openai", func(writer http.ResponseWriter, request *http.Request) {
		bound.Store(int64(said(request)["max_output_tokens"].(float64)))
		io.WriteString(writer, `{"usage":{"input_tokens":10,"output_tokens":100}}`)
	})
	expect(t, do(t, w.client(), "POST", modelsURL+"/openai/v1/responses", `{"model":"small"}`).StatusCode, 200)
	if bound := bound.Load(); bound < 190 || bound > 200 {
		t.Errorf("it is bounded to %d", bound)
	}
	expect(t, w.bill(1).Nanos, 10*1000+100*5000)
}

func TestAnOlderModelIsAskedForLess(t *testing.T) {
	t.Parallel()
	w := newModels(t, usd(10))
	w.provider("openai", func(writer http.ResponseWriter, request *http.Request) {
		if said(request)["max_completion_tokens"].(float64) > 16384 {
			writer.WriteHeader(400)
			io.WriteString(writer, `{"error":{"message":"max_completion_tokens is too large"}}`)
			return
		}
		answerChat(writer)
	})
	expect(t, do(t, w.client(), "POST", modelsURL+"/openai/v1/chat/completions", `{"model":"small"}`).text, chatAnswer)
	got := do(t, w.client(), "POST", modelsURL+"/openai/v1/chat/completions", `{"model":"small","max_completion_tokens":20000}`)
	contains(t, got.text, "too large")
	expect(t, w.bill(2).Ending, models.Refused)
	expect(t, w.bill(2).Nanos, 0)
}

func TestAStreamIsCutAtTheEndOfItsBudget(t *testing.T) {
	t.Parallel()
	w := newModels(t, usd(0.0006)) // 100 tokens of output and some of input
	gone := make(chan struct{})
	w.provider("openai", func(writer http.ResponseWriter, request *http.Request) {
		defer close(gone)
		io.Copy(io.Discard, request.Body)
		writer.Header().Set("Content-Type", "text/event-stream")
		for request.Context().Err() == nil { // whatever was asked for
			fmt.Fprint(writer, "data: {\"choices\":[{\"delta\":{\"content\":\"x\"}}]}\n\n")
			writer.(http.Flusher).Flush()
			time.Sleep(time.Millisecond)
		}
	})
	got := do(t, w.client(), "POST", modelsURL+"/openai/v1/chat/completions", `{"model":"small","stream":true,"max_tokens":100}`)
	contains(t, got.text, `"code":"model_budget_used"`)
	<-gone
	bill := w.bill(1)
	expect(t, fmt.Sprint(bill.Ending, bill.Estimated), fmt.Sprint("cut", true))
	if bill.Nanos > 600_000+5000 || bill.Usage.Output < 100 {
		t.Errorf("it costs %+v", bill)
	}
	w.isFree()
}

func TestADisconnectClosesTheUpstreamAndIsBilled(t *testing.T) {
	t.Parallel()
	w := newModels(t, usd(1))
	gone := make(chan struct{}, 1)
	w.provider("anthropic", func(writer http.ResponseWriter, request *http.Request) {
		io.Copy(io.Discard, request.Body)
		writer.Header().Set("Content-Type", "text/event-stream")
		io.WriteString(writer, "data: {\"type\":\"message_start\",\"message\":{\"usage\":{\"input_tokens\":700,\"output_tokens\":1}}}\n\n")
		for range 30 {
			io.WriteString(writer, "data: {\"type\":\"content_block_delta\",\"delta\":{\"text\":\"abc\"}}\n\n")
		}
		writer.(http.Flusher).Flush()
		<-request.Context().Done()
		gone <- struct{}{}
	})
	guest := w.take("models.atoll.internal", 80)
	const body = `{"model":"claude","max_tokens":5000,"stream":true}`
	fmt.Fprintf(guest, "POST /anthropic/v1/messages HTTP/1.1\r\nHost: models.atoll.internal\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
	lines := bufio.NewReader(guest)
	for line := ""; !strings.Contains(line, "block_delta"); {
		var err error
		line, err = lines.ReadString('\n')
		must(t, err)
	}
	guest.Close()
	<-gone
	bill := w.bill(1)
	expect(t, fmt.Sprint(bill.Ending, bill.Estimated, bill.Usage.Input), fmt.Sprint("broken", true, 700))
	if bill.Usage.Output < 30 || bill.Usage.Output > 5000 {
		t.Errorf("it used %+v", bill.Usage)
	}
	// Without a stream nobody knows what the provider does.
	w.provider("anthropic", func(_ http.ResponseWriter, request *http.Request) {
		io.Copy(io.Discard, request.Body)
		gone <- struct{}{}
		<-request.Context().Done()
	})
	w.edge.sandboxes["s"].pool.rotate()
	guest = w.take("models.atoll.internal", 80)
	const plain = `{"model":"claude","max_tokens":5000}`
	fmt.Fprintf(guest, "POST /anthropic/v1/messages HTTP/1.1\r\nHost: models.atoll.internal\r\nContent-Length: %d\r\n\r\n%s", len(plain), plain)
	<-gone
	guest.Close()
	expect(t, w.bill(2).Usage.Output, 5000)
	w.isFree()
}

func TestWithoutASupervisorOnlyWhatIsAllottedIsSpent(t *testing.T) {
	t.Parallel()
	w := newModels(t, usd(1))
	w.provider("openai", func(writer http.ResponseWriter, _ *http.Request) { answerChat(writer) })
	const body = `{"model":"small","max_tokens":100}`
	expect(t, do(t, w.client(), "POST", modelsURL+"/openai/v1/chat/completions", body).StatusCode, 200)
	w.bill(1)
	w.purse.mu.Lock()
	w.purse.isAway = true
	w.purse.mu.Unlock()
	expect(t, do(t, w.client(), "POST", modelsURL+"/openai/v1/chat/completions", `{"model":"small","max_tokens":20}`).StatusCode, 200)
	got := do(t, w.client(), "POST", modelsURL+"/openai/v1/chat/completions", body)
	expect(t, got.StatusCode, 503)
	contains(t, got.text, "model_gateway_unavailable")
}

func TestASandboxThatLosesItsModelsLosesItsConnectionsToThem(t *testing.T) {
	t.Parallel()
	w := newModels(t, usd(1))
	came, gone := make(chan struct{}), make(chan struct{})
	w.provider("openai", func(_ http.ResponseWriter, request *http.Request) {
		io.Copy(io.Discard, request.Body)
		close(came)
		<-request.Context().Done()
		close(gone)
	})
	guest := w.take("models.atoll.internal", 80)
	fmt.Fprint(guest, "POST /openai/v1/responses HTTP/1.1\r\nHost: models.atoll.internal\r\nContent-Length: 17\r\n\r\n{\"model\":\"small\"}")
	<-came
	w.policyWith(dict{})
	must(t, w.setRulesOfAll())
	<-gone
	eventually(t, "the reset", func() bool { return w.wasReset(guest) })
}

func Test200StreamsAtOnceDoNotOverspend(t *testing.T) {
	t.Parallel()
	const streams, output = 200, 200
	w := newModels(t, models.Amount{Tokens: -1, Nanos: 200_000_000})
	w.purse.spent["sandbox:s"] = models.Amount{Nanos: 190_000_000} // 95 %
	w.provider("openai", func(writer http.ResponseWriter, request *http.Request) {
		io.Copy(io.Discard, request.Body)
		writer.Header().Set("Content-Type", "text/event-stream")
		for range 10 {
			fmt.Fprint(writer, "data: {\"choices\":[{\"delta\":{\"content\":\"x\"}}]}\n\n")
			writer.(http.Flusher).Flush()
			time.Sleep(time.Millisecond)
		}
		fmt.Fprintf(writer, "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":20,\"completion_tokens\":%d}}\n\n", output-50)
	})
	var served, refused atomic.Int32
	var asking sync.WaitGroup
	client := w.client()
	for range streams {
		asking.Go(func() {
			got := do(t, client, "POST", modelsURL+"/openai/v1/chat/completions",
				fmt.Sprintf(`{"model":"small","stream":true,"max_completion_tokens":%d}`, output))
			switch got.StatusCode {
			case 200:
				served.Add(1)
			case 429:
				refused.Add(1)
			default:
				t.Errorf("%d: %s", got.StatusCode, got.text)
			}
		})
	}
	asking.Wait()
	w.bill(int(served.Load()))
	w.isFree()
	w.purse.mu.Lock()
	spent := w.purse.spent["sandbox:s"].Nanos
	w.purse.mu.Unlock()
	if spent > 200_000_000 || served.Load() < 5 || served.Load()+refused.Load() != streams {
		t.Errorf("%d are served, %d are refused, and %d nanos are spent", served.Load(), refused.Load(), spent)
	}
}
