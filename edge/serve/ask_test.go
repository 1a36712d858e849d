package serve

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"atoll/edge/control"
)

func TestARequestIsHeldUntilSomebodyApprovesIt(t *testing.T) {
	t.Parallel()
	for _, h2 := range []bool{false, true} {
		w := askWorld(t, asking)
		body := strings.Repeat("money ", 20_000)
		got := later(t, w.clientOver(h2), "POST", "https://a.x/pay?to=me", body,
			"X-Note", "hello", "Authorization", "Bearer x", "Cookie", "a=b", "X-Long", strings.Repeat("y", 3000))
		card := w.ask(1)
		expect(t, w.dialled(), 0)
		w.mu.Lock()
		expect(t, string(w.asked.bodies[card.Ask]) == body, true)
		w.mu.Unlock()
		expect(t, fmt.Sprint(card.Scheme, card.Method, card.Host, card.Port, card.Path, card.Rule, card.Count, card.Again, card.BodyBytes),
			fmt.Sprint("https", "POST", "a.x", 443, "/pay?to=me", 0, 1, false, len(body)))
		expect(t, len(card.Ask) == 16 && len(card.Digest) == 64 && card.Deadline-card.At == 300, true)
		expect(t, card.At > float64(time.Now().Unix()-60), true)
		headers := fmt.Sprint(card.Headers)
		for _, part := range []string{"[Host a.x]", "[X-Note hello]", "[Authorization ***]", "[Cookie ***]", "yyy…]"} {
			contains(t, headers, part)
		}
		w.approves(card)
		reply := <-got
		expect(t, reply.StatusCode, 200)
		expect(t, reply.text == "POST /pay?to=me hello "+body, true)
		expect(t, w.ends(1), []string{"allowed 1 0"})
		w.noted("1 allow: approved by a person\n1 ask: rule pay decides")
		expect(t, w.answer(card, control.Message{Action: "allow"}), errUnknownAsk.Error())
	}
}

func TestARequestThatIsDeniedSaysWhy(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		answer                control.Message
		code, says, wantsNote string
	}{
		{control.Message{Code: "ask_denied", Reason: "pay\x1b[31m less\n"}, "ask_denied", "a person has denied this request: pay[31m less\"", "denied by a person: pay[31m less"},
		{control.Message{Code: "ask_denied"}, "ask_denied", "a person has denied this request\"", "denied by a person"},
		{control.Message{Code: "ask_nobody", Reason: "run atoll asks"}, "ask_nobody", "nobody is there to be asked about this request: run atoll asks", "nobody was there to be asked: run atoll asks"},
	} {
		w := askWorld(t, asking)
		got := later(t, w.client(), "GET", "https://a.x/", "")
		c.answer.Action = "deny"
		expect(t, w.answer(w.ask(1), c.answer), "")
		reply := <-got
		expect(t, reply.StatusCode, 403)
		for _, part := range []string{`"error":"` + c.code + `"`, `"rule":"pay"`, c.says, `"remedy":"`} {
			contains(t, reply.text, part)
		}
		expect(t, w.ends(1), []string{"denied 0 1"})
		w.noted("1 ask: rule pay decides\n1 deny: " + c.wantsNote)
		expect(t, w.dialled(), 0)
	}
}

func TestAnAnswerThatIsNotOfTheAskSendsNothing(t *testing.T) {
	t.Parallel()
	w := askWorld(t, asking)
	got := later(t, w.client(), "GET", "https://a.x/", "")
	card := w.ask(1)
	for want, each := range map[string]control.Message{
		"the digest is not that of the ask":           {Sandbox: "s", Ask: card.Ask, Digest: strings.Repeat("0", 64), Action: "allow"},
		errUnknownAsk.Error():                         {Sandbox: "s", Ask: "0123456789abcdef", Digest: card.Digest, Action: "allow"},
		`there is no answer "unplug"`:                 {Sandbox: "s", Ask: card.Ask, Digest: card.Digest, Action: "unplug"},
		`there is no code "other"`:                    {Sandbox: "s", Ask: card.Ask, Digest: card.Digest, Action: "deny", Code: "other"},
		`there is no code ""`:                         {Sandbox: "s", Ask: card.Ask, Digest: card.Digest, Action: "deny"},
		"an answer that allows has no code":           {Sandbox: "s", Ask: card.Ask, Digest: card.Digest, Action: "allow", Code: "ask_denied"},
		"an answer that denies has no for_s":          {Sandbox: "s", Ask: card.Ask, Digest: card.Digest, Action: "deny", Code: "ask_denied", ForS: 1},
		"for_s is not 0 to 31622400":                  {Sandbox: "s", Ask: card.Ask, Digest: card.Digest, Action: "allow", ForS: -1},
		"the reason is longer than 500 characters":    {Sandbox: "s", Ask: card.Ask, Digest: card.Digest, Action: "deny", Code: "ask_denied", Reason: strings.Repeat("é", 501)},
		errUnknownAsk.Error() + " in another sandbox": {Sandbox: "t", Ask: card.Ask, Digest: card.Digest, Action: "allow"},
	} {
		refused := w.edge.Answer(&each)
		if refused == nil || !strings.HasPrefix(want, refused.Error) || refused.Op != "unanswered" || refused.Ask != each.Ask || refused.Sandbox != each.Sandbox {
			t.Errorf("%s: %+v", want, refused)
		}
	}
	expect(t, w.dialled(), 0)
	w.approves(card)
	expect(t, (<-got).StatusCode, 200)
}

func TestEqualRequestsAreOneAsk(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		forS     float64
		statuses string
		ended    string
	}{
		{0, "[200 403 403]", "allowed 1 2"},
		{60, "[200 200 200]", "allowed 3 0"},
	} {
		w := askWorld(t, asking)
		var came []<-chan reply
		for i := range 3 {
			came = append(came, later(t, w.client(), "POST", "https://a.x/pay", "10"))
			w.counted(i + 1)
		}
		card := w.ask(1)
		eventually(t, "the count is told", func() bool {
			w.mu.Lock()
			defer w.mu.Unlock()
			count := w.asked.counts
			return len(count) > 0 && count[len(count)-1] == control.AskCount{Op: "ask_count", Sandbox: "s", Ask: card.Ask, Count: 3}
		})
		w.mu.Lock()
		if len(w.asked.counts) > 2 {
			t.Errorf("%d counts were told", len(w.asked.counts))
		}
		w.mu.Unlock()
		expect(t, w.answer(card, control.Message{Action: "allow", ForS: c.forS}), "")
		var statuses []int
		for _, each := range came {
			got := <-each
			statuses = append(statuses, got.StatusCode)
			if got.StatusCode == 403 {
				contains(t, got.text, `"error":"ask_answered_once","message":"an equal request was approved once`)
			}
		}
		expect(t, statuses, c.statuses)
		expect(t, w.ends(1), []string{c.ended})
	}
}

func TestNobodyAnswersInTime(t *testing.T) {
	t.Parallel()
	w := askWorld(t, `{"action":"ask","ask":{"deadline_s":5}}`)
	first := later(t, w.client(), "GET", "https://a.x/", "", "User-Agent", "x")
	w.counted(1)
	time.Sleep(1500 * time.Millisecond)
	began := time.Now()
	second := later(t, w.clientOver(false), "GET", "https://a.x/", "", "User-Agent", "x")
	for _, each := range []<-chan reply{first, second} {
		got := <-each
		expect(t, got.StatusCode, 403)
		contains(t, got.text, `"error":"ask_expired","message":"a person was asked about this request, and nobody answered within 5 s"`)
	}
	if took := time.Since(began); took > 4800*time.Millisecond {
		t.Errorf("the second one waited for %v", took)
	}
	expect(t, w.ends(1), []string{"expired 0 2"})
	w.counted(0)
}

func TestAGuestThatHangsUpLeavesItsAsk(t *testing.T) {
	t.Parallel()
	for _, h2 := range []bool{false, true} {
		w := askWorld(t, asking)
		begin := func() context.CancelFunc {
			ctx, cancel := context.WithCancel(t.Context())
			request, err := http.NewRequestWithContext(ctx, "POST", "https://a.x/", strings.NewReader("body"))
			must(t, err)
			go func() {
				response, err := w.clientOver(h2).Do(request)
				if err == nil {
					response.Body.Close()
				}
			}()
			return cancel
		}
		one := begin()
		w.counted(1)
		other := begin()
		w.counted(2)
		card := w.ask(1)
		one()
		w.counted(1)
		eventually(t, "the count is told", func() bool {
			w.mu.Lock()
			defer w.mu.Unlock()
			return len(w.asked.counts) > 0 && w.asked.counts[len(w.asked.counts)-1].Count == 1
		})
		other()
		expect(t, w.ends(1), []string{"gone 0 0"})
		expect(t, w.answer(card, control.Message{Action: "allow"}), errUnknownAsk.Error())
		w.noted("2 ask: rule pay decides\n2 deny: " + textGone)
		w.counted(0)
		expect(t, w.dialled(), 0)
	}
}

func TestARequestThatIsTooLongIsNotAskedAbout(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.secure("a.x", true, echoing)
	w.policy(`{"action":"ask","paths":["/short"],"max_body_bytes":10}`, asking)
	long := strings.Repeat("x", 256<<10+1)
	for _, h2 := range []bool{false, true} {
		for _, c := range []struct{ path, body, code string }{
			{"/", long, "ask_body_too_long"},
			{"/?" + strings.Repeat("q", 8<<10), "", "ask_too_long"},
			{"/?" + strings.Repeat("x\xff", 3<<10), "", "ask_too_long"},
		} {
			got := do(t, w.clientOver(h2), "POST", "https://a.x"+c.path, c.body)
			expect(t, got.StatusCode, 403)
			contains(t, got.text, `"error":"`+c.code+`"`)
		}
		for path, body := range map[string]string{"/": long, "/short": "0123456789+"} {
			request, err := http.NewRequest("POST", "https://a.x"+path, io.NopCloser(strings.NewReader(body)))
			must(t, err)
			request.ContentLength = -1
			response, err := w.clientOver(h2).Do(request)
			must(t, err)
			text, _ := io.ReadAll(response.Body)
			response.Body.Close()
			expect(t, response.StatusCode, 403)
			contains(t, string(text), "long")
		}
	}
	most := later(t, w.client(), "POST", "https://a.x/", long[1:])
	w.approves(w.ask(1))
	expect(t, (<-most).StatusCode, 200)
	w.counted(0)
}

func TestABodyThatDoesNotComeIsNotWaitedFor(t *testing.T) {
	before := bodyMost
	bodyMost = 200 * time.Millisecond
	defer func() { bodyMost = before }()
	w := newWorld(t)
	w.server("a.x", echoing)
	w.policy(asking)
	conn := w.take("a.x", 80)
	answer := talk(t, conn, "POST / HTTP/1.1\r\nHost: a.x\r\nContent-Length: 10\r\n\r\nhalf")
	contains(t, answer, "HTTP/1.1 403")
	contains(t, answer, "its body does not come")
	w.counted(0)
}

func TestARequestWithExpectIsHeldToo(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.server("a.x", echoing)
	w.policy(asking)
	conn := w.take("a.x", 80)
	hear(t, conn, "POST /pay HTTP/1.1\r\nHost: a.x\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n", "HTTP/1.1 100 Continue\r\n\r\n")
	io.WriteString(conn, "10")
	w.approves(w.ask(1))
	response, err := http.ReadResponse(bufio.NewReader(conn), nil)
	must(t, err)
	text, err := io.ReadAll(response.Body)
	must(t, err)
	expect(t, string(text), "POST /pay  10")
}
