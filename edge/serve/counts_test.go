package serve

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"atoll/edge/control"
	"atoll/edge/limit"
)

func TestRequestsPerTime(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.server("a.x", func(http.ResponseWriter, *http.Request) {})
	rule := `{"action":"allow","limit":{"requests":2,"per_s":60}}`
	w.policy(rule)
	client := w.client()
	status := func() int { return do(t, client, "GET", "http://a.x/", "").StatusCode }
	expect(t, fmt.Sprint(status(), status()), "200 200")
	got := do(t, client, "GET", "http://a.x/", "")
	expect(t, got.StatusCode, 429)
	if wait, err := strconv.Atoi(got.Header.Get("Retry-After")); err != nil || wait < 1 || wait > 60 {
		t.Errorf("it may be tried again after %q", got.Header.Get("Retry-After"))
	}
	contains(t, got.text, "egress_limited")
	w.policy(rule)
	w.sendRules(0)
	expect(t, status(), 429)
}

func TestWhatWasCountedIsToldAndCountsOnInAnotherEdge(t *testing.T) {
	t.Parallel()
	rule := `{"action":"allow","limit":{"requests":3,"per_s":600,"total_bytes":1000000}}`
	first := newWorld(t)
	first.server("a.x", func(http.ResponseWriter, *http.Request) {})
	named := dict{"spent": []dict{{"rule": 1, "key": "the rule"}}}
	first.policyWith(named, `{"action":"deny","methods":["PUT"]}`, rule)
	for range 2 {
		expect(t, do(t, first.client(), "POST", "http://a.x/", strings.Repeat("x", 1000)).StatusCode, 200)
	}
	must(t, first.edge.Handle(&control.Message{Op: "forget", Sandbox: "s"}, nil))
	eventually(t, "all is told", func() bool { return first.spending("the rule").Total >= 2000 })
	told := first.spending("the rule")
	if told.Total > 10000 {
		t.Errorf("%d bytes", told.Total)
	}
	expect(t, sum(told.Requests), 2)

	second := newWorld(t)
	second.server("a.x", func(http.ResponseWriter, *http.Request) {})
	now := time.Now().UnixMilli()
	counted := []dict{
		{"rule": 0, "total_bytes": 5, "requests": [][]int64{{now, 2}}},
		{"rule": 7, "total_bytes": 5, "requests": [][]int64{{now, 2}}},
		{"rule": 1, "total_bytes": told.Total, "requests": [][]int64{{now - 700_000, 2}, {now - 10_500, 1}, {now, 1}}},
	}
	second.policyWith(dict{"spent": counted}, `{"action":"deny","methods":["PUT"]}`, rule)
	expect(t, do(t, second.client(), "GET", "http://a.x/", "").StatusCode, 200)
	expect(t, do(t, second.client(), "GET", "http://a.x/", "").StatusCode, 429)

	third := newWorld(t)
	third.server("a.x", func(http.ResponseWriter, *http.Request) {})
	third.policyWith(dict{"spent": []dict{{"rule": 0, "total_bytes": 1000001}}}, rule)
	expect(t, do(t, third.client(), "GET", "http://a.x/", "").StatusCode, 403)
}

// spending is what was told of a rule, as a supervisor puts it together.
func (w *world) spending(key string) limit.Told {
	w.mu.Lock()
	defer w.mu.Unlock()
	all, found := map[int64]int64{}, limit.Told{Key: key}
	for _, message := range w.spent {
		for _, each := range message.Spent {
			if each.Key == key {
				found.Total = max(found.Total, each.Total)
				for _, part := range each.Requests {
					all[part[0]] = max(all[part[0]], part[1])
				}
			}
		}
	}
	for end, count := range all {
		found.Requests = append(found.Requests, [2]int64{end, count})
	}
	return found
}

func sum(requests [][2]int64) (all int64) {
	for _, each := range requests {
		all += each[1]
	}
	return all
}

func TestBytesPerSecond(t *testing.T) {
	w := newWorld(t)
	body := strings.Repeat("x", 300<<10)
	w.server("a.x", func(writer http.ResponseWriter, request *http.Request) {
		io.Copy(io.Discard, request.Body)
		if request.Method == "GET" {
			io.WriteString(writer, body)
		}
	})
	w.policy(`{"action":"allow","limit":{"bytes_s":400000}}`)
	for _, method := range []string{"GET", "PUT"} {
		began := time.Now()
		sent := body
		if method == "GET" {
			sent = ""
		}
		expect(t, do(t, w.client(), method, "http://a.x/", sent).StatusCode, 200)
		if took := time.Since(began); took < 400*time.Millisecond || took > 5*time.Second {
			t.Errorf("%s took %v", method, took)
		}
	}
}

func TestTotalBytes(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	arrived := &recorder{}
	w.server("a.x", func(writer http.ResponseWriter, request *http.Request) {
		if request.Method == "PUT" {
			arrived.ServeHTTP(writer, request)
			return
		}
		io.WriteString(writer, strings.Repeat("x", 100<<10))
	})
	w.policy(`{"action":"allow","limit":{"total_bytes":250000}}`)
	client := w.client()
	for range 2 {
		expect(t, len(do(t, client, "GET", "http://a.x/", "").text), 100<<10)
	}
	request, err := http.NewRequest("PUT", "http://a.x/", strings.NewReader(strings.Repeat("y", 60000)))
	must(t, err)
	request.ContentLength = 60000
	response, err := client.Do(request)
	must(t, err)
	expect(t, response.StatusCode, 403)
	expect(t, do(t, client, "GET", "http://a.x/", "").StatusCode, 403)
	eventually(t, "the upload is broken off", func() bool { return strings.HasSuffix(arrived.all(), "broken") })
}

func TestABodyOfUnknownLengthIsCut(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	arrived := &recorder{}
	w.server("plain.x", arrived.ServeHTTP)
	w.secure("two.x", true, arrived.ServeHTTP)
	w.policy(`{"action":"allow","max_body_bytes":1000}`)
	send := func(url string, size int, length int64) int {
		request, err := http.NewRequest("POST", url, io.NopCloser(bytes.NewReader(make([]byte, size))))
		must(t, err)
		request.ContentLength = length
		response, err := w.client().Do(request)
		must(t, err)
		response.Body.Close()
		return response.StatusCode
	}
	for _, url := range []string{"http://plain.x/", "https://two.x/"} {
		expect(t, send(url, 1000, 1000), 200)
		expect(t, send(url, 1000, -1), 200)
		expect(t, send(url, 1001, 1001), 403)
		expect(t, send(url, 1001, -1), 403)
		expect(t, send(url, 100000, -1), 403)
	}
	time.Sleep(50 * time.Millisecond)
	for _, line := range strings.Split(arrived.all(), "\n") {
		if len(line) > 4100 && !strings.HasSuffix(line, "broken") {
			t.Errorf("a request arrived that is too long: %d", len(line))
		}
	}
}
