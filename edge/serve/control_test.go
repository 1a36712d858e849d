package serve

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"atoll/edge/control"
	"atoll/policy"
)

// sendRules sends each open connection its rules.
func (w *world) sendRules(rules ...int) {
	w.t.Helper()
	s := w.edge.all()[0]
	s.mu.Lock()
	var ids []string
	for which := range s.connections {
		ids = append(ids, which.id)
	}
	s.mu.Unlock()
	for _, id := range ids {
		must(w.t, w.edge.Carry(w, &control.Message{
			Op: "rules", Sandbox: w.sandbox, Version: w.versions[w.sandbox], Connection: id, Rules: rules,
			Ceiling: w.allOfCeiling(),
		}, nil))
	}
}

func TestAChangeOfThePolicyReachesWhatIsGoingOn(t *testing.T) {
	w := newWorld(t)
	var began, ended atomic.Int32
	handler := func(writer http.ResponseWriter, request *http.Request) {
		began.Add(1)
		defer ended.Add(1)
		http.NewResponseController(writer).EnableFullDuplex()
		writer.WriteHeader(200)
		writer.(http.Flusher).Flush()
		if request.Method == "PUT" {
			io.Copy(io.Discard, request.Body)
			return
		}
		<-request.Context().Done()
	}
	w.server("plain.x", handler)
	w.secure("two.x", true, handler)
	for _, url := range []string{"http://plain.x/", "https://two.x/"} {
		for _, method := range []string{"GET", "PUT"} {
			w.policy(`{"action":"allow","paths":["/"]}`, `{"action":"deny"}`)
			began.Store(0)
			ended.Store(0)
			var body io.Reader
			if method == "PUT" {
				reader, writer := io.Pipe()
				defer writer.Close()
				body = reader
			}
			request, err := http.NewRequest(method, url, body)
			must(t, err)
			client := w.client()
			response, err := client.Do(request)
			must(t, err)
			w.policy(`{"action":"allow","paths":["/","/new"]}`, `{"action":"deny"}`)
			w.sendRules(0, 1)
			expect(t, ended.Load(), 0)
			changed := time.Now()
			w.policy(`{"action":"allow","paths":["/other"]}`, `{"action":"deny"}`)
			w.sendRules(0, 1)
			_, err = io.ReadAll(response.Body)
			if err == nil {
				t.Error("it was not cut")
			}
			eventually(t, "the request ends upstream", func() bool { return ended.Load() == 1 })
			if took := time.Since(changed); took > time.Second {
				t.Errorf("it took %v", took)
			}
			response.Body.Close()
			client.CloseIdleConnections()
		}
	}
}

func TestNewRequestsOfAnOpenConnectionAreJudgedByNewRules(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.server("a.x", func(http.ResponseWriter, *http.Request) {})
	client := w.client()
	for i, c := range []struct {
		method string
		want   int
	}{{"GET", 200}, {"POST", 403}, {"GET", 200}} {
		w.policy(`{"action":"allow","methods":["` + c.method + `"]}`)
		if i > 0 {
			w.sendRules(0)
		}
		expect(t, do(t, client, "GET", "http://a.x/", "").StatusCode, c.want)
	}
	expect(t, w.dialled(), 2) // one before the change, one after
}

func TestAConnectionWithoutNewRulesIsCut(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.server("a.x", func(http.ResponseWriter, *http.Request) {})
	w.policy(inspected)
	conn := w.take("a.x", 80)
	w.policy(inspected)
	expect(t, talk(t, conn, ""), "")
	conn.SetReadDeadline(time.Now().Add(3 * time.Second))
	if _, err := conn.Read(make([]byte, 1)); err != io.EOF {
		t.Error(err)
	}
}

func TestRawAndUpgradedConnectionsAreCut(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	greeter(w, "a.x", false)
	w.policy(allow)
	conn := w.take("a.x", 25)
	hear(t, conn, "x\n", "220 hello\r\nx\n")
	w.policy(inspected)
	w.sendRules(0)
	conn.SetReadDeadline(time.Now().Add(time.Second))
	if _, err := conn.Read(make([]byte, 1)); err != io.EOF {
		t.Error(err)
	}
	expect(t, w.wasReset(conn), true)
}

func TestARawConnectionThatEndsWellIsNotReset(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	received := make(chan int64, 1)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	t.Cleanup(func() { listener.Close() })
	w.named("a.x", listener.Addr().String())
	go func() {
		conn, err := listener.Accept()
		if err != nil {
			return
		}
		defer conn.Close()
		io.WriteString(conn, "220 hello\r\n")
		closeWrite(conn) // it has said all and still reads
		count, _ := io.Copy(io.Discard, conn)
		received <- count
	}()
	w.policy(allow)
	conn := w.take("a.x", 25)
	const size = 8 << 20
	_, err = conn.Write(append([]byte{0}, make([]byte, size)...))
	must(t, err)
	must(t, closeWrite(conn))
	got, err := io.ReadAll(conn)
	must(t, err)
	expect(t, string(got), "220 hello\r\n")
	expect(t, <-received, int64(size+1))
	expect(t, w.wasReset(conn), false)
}

func TestForgetEndsEverything(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	var ended atomic.Int32
	w.server("a.x", func(writer http.ResponseWriter, request *http.Request) {
		writer.(http.Flusher).Flush()
		<-request.Context().Done()
		ended.Add(1)
	})
	w.policy(inspected)
	response, err := w.client().Get("http://a.x/")
	must(t, err)
	must(t, w.edge.Handle(&control.Message{Op: "forget", Sandbox: "s"}, nil))
	if _, err := io.ReadAll(response.Body); err == nil {
		t.Error("it goes on")
	}
	eventually(t, "it ends upstream", func() bool { return ended.Load() == 1 })
}

func TestAPolicyThatCannotBeReadAllowsNothing(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.policy(inspected)
	err := w.edge.Handle(&control.Message{Op: "policy", Sandbox: "s", Version: 1}, memfd(t, dict{"rules": []dict{{"action": "?"}}}))
	if err == nil {
		t.Error("it was read")
	}
	w.server("a.x", func(http.ResponseWriter, *http.Request) { t.Error("it arrived") })
	expect(t, do(t, w.client(), "GET", "http://a.x/", "").StatusCode, 403)
	conn, _ := w.takeAs("a.x", "192.0.2.1", 80)
	conn.Close()
}

func TestARuleThatUnplugs(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.policy(`{"action":"unplug","paths":["/trap"]}`, allow)
	w.server("a.x", func(http.ResponseWriter, *http.Request) {})
	expect(t, do(t, w.client(), "GET", "http://a.x/", "").StatusCode, 200)
	if response, err := w.client().Get("http://a.x/trap"); err == nil {
		t.Errorf("it was answered: %s", response.Status)
	}
	eventually(t, "it is told", func() bool { return len(w.unplugged()) == 1 })
	expect(t, *w.unplugged()[0].Rule, 0)
}

func TestObservingDeniesNothing(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.server("a.x", func(http.ResponseWriter, *http.Request) {})
	greeter(w, "r.x", false)
	w.policyWith(dict{"observe": true}, `{"action":"deny","methods":["POST"]}`, `{"action":"unplug","paths":["/x"]}`)
	for _, target := range []string{"/", "/x"} {
		expect(t, do(t, w.client(), "POST", "http://a.x"+target, "y").StatusCode, 200)
	}
	hear(t, w.take("r.x", 25), "", "220 hello\r\n")
	expect(t, len(w.unplugged()), 0)
	eventually(t, "it is told", func() bool {
		w.mu.Lock()
		defer w.mu.Unlock()
		for _, each := range w.entries {
			if !each.Observed || each.Action == "allow" {
				t.Errorf("%+v", each)
			}
		}
		return len(w.entries) == 3
	})
	got := do(t, w.client(), "GET", "http://a.x/a\\b", "")
	expect(t, got.StatusCode, 403)
}

func TestTheSupervisorAsksForAJudgement(t *testing.T) {
	t.Parallel()
	asked := func(document any, to policy.Asked, scheme, method, url, body string) control.Judged {
		question := dict{
			"policy": document, "destination": to,
			"request": dict{
				"scheme": scheme, "method": method, "url": url, "body": []byte(body),
				"headers": [][2]string{{"Content-Type", "application/json"}},
			},
		}
		answer, err := Judge(&control.Message{Op: "judge", ID: 9}, memfd(t, question))
		must(t, err)
		return *answer
	}
	document := dict{"rules": []any{
		dict{"action": "deny", "hosts": []string{"a.x"}, "methods": []string{"DELETE"}},
		dict{"action": "allow", "hosts": []string{"a.x"}, "json": dict{"a": []string{"1"}}, "set_headers": dict{"x-team": "a"}},
		dict{"action": "allow", "hosts": []string{"b.x"}},
		json.RawMessage(strings.Replace(inject("query", "key", ""), `{`, `{"hosts":["d.x"],`, 1)),
	}}
	resolved := func(name string, port int) policy.Asked {
		return policy.Asked{Name: name, Port: port, Addresses: []policy.Known{{Address: "192.0.2.1"}}}
	}
	ask := func(method, url, body string) control.Judged {
		return asked(document, resolved("a.x", 443), "https", method, url, body)
	}
	got := ask("POST", "https://a.x/?q", `{"a":1}`)
	expect(t, fmt.Sprint(got.ID, got.Action, *got.Rule, got.Changes), "9allow1 [set x-team]")
	got = ask("DELETE", "https://a.x/", "")
	expect(t, fmt.Sprint(got.Action, *got.Rule), "deny0")
	got = ask("GET", "https://a.x/", "")
	expect(t, fmt.Sprint(got.Action, got.Rule), "deny<nil>")
	contains(t, ask("GET", "https://a.x/%5c", "").Reason, "backslash")
	contains(t, ask("GET", "https://me@a.x/", "").Reason, "user name")
	contains(t, ask("GET", "a.x/", "").Reason, "no scheme")
	contains(t, asked(dict{"rules": []any{"a rule"}}, resolved("a.x", 443), "https", "GET", "https://a.x/", "").Reason, "cannot be judged")
	expect(t, asked(document, policy.Asked{Name: "a.x", Port: 443}, "https", "GET", "https://a.x/", "").Resolve, true)
	got = asked(document, policy.Asked{Name: "c.x", Port: 443}, "https", "GET", "https://c.x/", "")
	expect(t, []any{got.Resolve, got.Reason}, []any{false, "no rule allows c.x"})
	got = asked(document, resolved("d.x", 443), "https", "GET", "https://d.x/", "")
	expect(t, fmt.Sprint(got.Action, *got.Rule, got.Changes), "deny3 []")
	contains(t, got.Reason, "there is no secret gh")
	// What is not HTTP is judged as such, and a plain request by a rule of a name as a request.
	contains(t, asked(document, resolved("a.x", 443), "tcp", "", "tcp://a.x:443", "").Reason, "rule 1 decides")
	contains(t, asked(document, resolved("b.x", 80), "http", "get", "http://b.x/", "").Reason, "upper case")
	expect(t, asked(document, resolved("b.x", 443), "https", "get", "https://b.x/", "").Action, "allow")
	// Without rules, all that is public.
	expect(t, asked(nil, resolved("a.x", 80), "http", "get", "http://a.x/", "").Action, "allow")
	mine := policy.Asked{Name: "a.x", Port: 443, Addresses: []policy.Known{{Address: "192.0.2.1", Own: true}}}
	contains(t, asked(nil, mine, "https", "GET", "https://a.x/", "").Reason, "a.x leads to an address that is this host")
}

func TestThereIsABoundOnConnections(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.policy(inspected)
	var open []net.Conn
	for range connectionsMost {
		open = append(open, w.take("a.x", 80))
	}
	guest, theirs := sockets(t)
	err := w.edge.Carry(w, &control.Message{Op: "take", Sandbox: "s", Connection: "more", Address: "192.0.2.1", Port: 80}, theirs)
	if err == nil {
		t.Error("there is one more")
	}
	if _, err := guest.Read(make([]byte, 1)); err != io.EOF {
		t.Error(err)
	}
	for _, each := range open {
		each.Close()
	}
}

func TestSeenIsBounded(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.policy(inspected)
	w.server("a.x", func(http.ResponseWriter, *http.Request) {})
	client := w.client()
	for i := range 300 {
		do(t, client, "GET", "http://a.x/"+strconv.Itoa(i), "")
		do(t, client, "GET", "http://a.x/same", "")
	}
	eventually(t, "it is told", func() bool {
		w.mu.Lock()
		defer w.mu.Unlock()
		sum := 0
		for _, each := range w.entries {
			sum += each.Count
		}
		return sum == 600
	})
}

func TestRulesThatAreNotForTheDestinationAllowNothing(t *testing.T) {
	t.Parallel()
	for rule, want := range map[string]int{
		`{"action":"allow","methods":["GET"],"hosts":["b.x"]}`:                                    403,
		`{"action":"allow","methods":["GET"],"hosts":["*.a.x"]}`:                                  403,
		`{"action":"allow","methods":["GET"],"ports":[81,"8000-8100"]}`:                           403,
		`{"action":"allow","methods":["GET"],"addresses":["10.0.0.0/8"]}`:                         403,
		`{"action":"allow","methods":["GET"],"hosts":["b.x","A.x."]}`:                             200,
		`{"action":"allow","methods":["GET"],"hosts":["*.x"],"ports":["79-81"]}`:                  200,
		`{"action":"allow","methods":["GET"],"hosts":["*"],"addresses":["192.0.2.1"]}`:            200,
		`{"action":"allow","methods":["GET"],"addresses":["10.0.0.0/8","192.0.2.0/24"]}`:          200,
		`{"action":"allow","methods":["GET"],"hosts":["*.a.x"],"ports":[80],"name":"not for it"}`: 403,
	} {
		w := newWorld(t)
		w.policy(rule)
		w.server("a.x", func(http.ResponseWriter, *http.Request) {})
		if got := do(t, w.client(), "GET", "http://a.x/", "").StatusCode; got != want {
			t.Errorf("%s: got %d", rule, got)
		}
	}
}

func TestRulesOfAnOlderVersionAreNotTaken(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.server("a.x", func(http.ResponseWriter, *http.Request) { t.Error("it arrived") })
	w.policy(inspected)
	w.policy(inspected)
	guest, theirs := sockets(t)
	w.guests["old"] = guest
	err := w.edge.Carry(w, &control.Message{
		Op: "take", Sandbox: "s", Version: 1, Connection: "old", Name: "a.x", Address: "192.0.2.1", Port: 80, Rules: []int{0},
	}, theirs)
	if err == nil {
		t.Error("it was taken")
	}
	if answer := talk(t, guest, "GET / HTTP/1.1\r\nHost: a.x\r\n\r\n"); strings.Contains(answer, " 200 ") {
		t.Errorf("%q", answer)
	}
	guest.SetReadDeadline(time.Now().Add(5 * time.Second))
	if _, err := io.Copy(io.Discard, guest); errors.Is(err, os.ErrDeadlineExceeded) {
		t.Error("it is not cut")
	}
}
