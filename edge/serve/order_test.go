package serve

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"atoll/edge/control"
)

// hands is a carrier whose connections are pipes in memory, so that a test has its own clock.
type hands struct {
	mu    sync.Mutex
	ends  map[string]net.Conn
	reset map[string]bool
}

func newHands() *hands { return &hands{ends: map[string]net.Conn{}, reset: map[string]bool{}} }

func (h *hands) Dial(context.Context, string, string, string) (net.Conn, error) {
	return nil, errors.New("nothing is reached")
}

func (h *hands) Reset(_, connection string) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.reset[connection] = true
	return h.ends[connection].Close()
}

func (h *hands) wasReset(connection string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.reset[connection]
}

// take hands a connection of the sandbox "s" over.
func (h *hands) take(edge *Edge, id string, version int64) error {
	guest, theirs := net.Pipe()
	h.mu.Lock()
	h.ends[id] = guest
	h.mu.Unlock()
	return edge.admit(&taken{
		guest: &guestEnd{Conn: theirs, sandbox: "s", mark: mark{h, id}},
		name:  "a.x", address: "192.0.2.1", port: 80, rules: rules{version: version, own: []int{0}},
	})
}

func bareEdge() *Edge {
	return &Edge{
		queue: newQueue(), alarms: make(chan struct{}, 1), news: make(chan struct{}, 1), sandboxes: map[string]*sandbox{},
	}
}

func (h *hands) setPolicy(t *testing.T, edge *Edge, version int64) error {
	content := dict{"rules": []json.RawMessage{json.RawMessage(inspected)}}
	return edge.Handle(&control.Message{Op: "policy", Sandbox: "s", Version: version}, memfd(t, content))
}

// do is one step: what comes, or how long nothing does.
func (h *hands) do(t *testing.T, edge *Edge, step string) error {
	what, more, _ := strings.Cut(step, " ")
	version, _ := strconv.ParseInt(more, 10, 64)
	switch what {
	case "policy":
		return h.setPolicy(t, edge, version)
	case "take":
		return h.take(edge, "c1", version)
	case "rules":
		message := control.Message{Op: "rules", Sandbox: "s", Connection: "c1", Version: version, Rules: []int{0}}
		return edge.Carry(h, &message, nil)
	case "forget":
		return edge.Handle(&control.Message{Op: "forget", Sandbox: "s"}, nil)
	case "lose":
		edge.Lose(h)
		return nil
	}
	pause, err := time.ParseDuration(what)
	time.Sleep(pause)
	return err
}

// state tells what has become of the connection.
func (h *hands) state(edge *Edge) string {
	edge.mu.Lock()
	waits, found := edge.lobby.find("s", mark{h, "c1"}), edge.sandboxes["s"]
	edge.mu.Unlock()
	if waits != nil {
		return "waits for a policy"
	}
	if found != nil {
		if connection := found.connection(mark{h, "c1"}); connection != nil {
			connection.mu.Lock()
			defer connection.mu.Unlock()
			if connection.ruling == nil {
				return "waits"
			}
			return fmt.Sprintf("is judged by %d, %d rules", connection.ruling.version, len(connection.ruling.kept.Rules))
		}
	}
	if h.wasReset("c1") {
		return "is reset"
	}
	return "has ended"
}

func TestPolicyAndConnectionsComeInEveryOrder(t *testing.T) {
	for _, c := range []struct{ steps, want string }{
		{"policy 1, take 1", "is judged by 1, 1 rules"},
		{"policy 1, take 1, 59s", "is judged by 1, 1 rules"},
		// The policy comes after its connection.
		{"take 1", "waits for a policy"},
		{"take 1, policy 1", "is judged by 1, 1 rules"},
		{"take 1, 4900ms, policy 1, 59s", "is judged by 1, 1 rules"},
		{"take 1, 5s", "is reset"},
		{"policy 1, take 2", "waits for a policy"},
		{"policy 1, take 2, policy 2", "is judged by 2, 1 rules"},
		{"policy 1, take 3, policy 2", "waits for a policy"},
		{"policy 1, take 3, policy 2, policy 3", "is judged by 3, 1 rules"},
		{"policy 1, take 2, 5s", "is reset"},
		// The rules of a connection change while it waits.
		{"take 1, rules 2, policy 1", "waits for a policy"},
		{"take 1, rules 2, policy 1, policy 2", "is judged by 2, 1 rules"},
		{"take 1, policy 2", "waits"},
		{"take 1, policy 2, rules 2", "is judged by 2, 1 rules"},
		{"take 1, policy 2, 900ms", "is reset"},
		{"policy 1, take 2, rules 1", "is judged by 1, 1 rules"},
		// A change of the policy comes before its rules.
		{"policy 1, take 1, policy 2", "waits"},
		{"policy 1, take 1, policy 2, 800ms, rules 2, 59s", "is judged by 2, 1 rules"},
		{"policy 1, take 1, policy 2, 900ms", "is reset"},
		{"policy 1, take 1, policy 2, 800ms, policy 3, 100ms", "is reset"},
		{"policy 1, take 1, policy 2, 800ms, rules 2, policy 3, 800ms, rules 3", "is judged by 3, 1 rules"},
		// Its rules come before it.
		{"policy 1, take 1, rules 2", "waits"},
		{"policy 1, take 1, rules 2, 800ms, policy 2, 59s", "is judged by 2, 1 rules"},
		{"policy 1, take 1, rules 2, 900ms", "is reset"},
		{"policy 1, take 1, rules 2, rules 3, policy 2", "waits"},
		{"policy 1, take 1, rules 2, rules 3, policy 2, policy 3", "is judged by 3, 1 rules"},
		{"policy 1, take 1, rules 3, policy 2, 900ms", "is reset"},
		// The same policy once more.
		{"policy 1, take 1, policy 1, 59s", "is judged by 1, 1 rules"},
		// Cut and mended.
		{"policy 1, take 1, forget", "has ended"},
		{"policy 1, forget, take 2, policy 2", "is judged by 2, 1 rules"},
		{"policy 1, take 2, forget, policy 2", "is judged by 2, 1 rules"},
		{"policy 1, take 2, forget, 5s", "is reset"},
		{"policy 1, forget, take 1, policy 2, 900ms", "is reset"},
		// The carrier ends.
		{"take 1, lose", "has ended"},
		{"take 1, lose, policy 1", "has ended"},
		{"policy 1, take 1, lose", "has ended"},
		{"policy 1, take 1, rules 2, lose, policy 2", "has ended"},
	} {
		t.Run(c.steps, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				edge, carrier := bareEdge(), newHands()
				for step := range strings.SplitSeq(c.steps, ", ") {
					if err := carrier.do(t, edge, step); err != nil {
						t.Log(err) // of an older version
					}
					synctest.Wait()
				}
				expect(t, carrier.state(edge), c.want)
				edge.Lose(carrier)
			})
		})
	}
}

func TestRulesOfAnOlderVersionAreAFault(t *testing.T) {
	for _, steps := range []string{"policy 2, take 2, rules 1", "policy 2, take 1", "policy 1, policy 2, take 1, rules 1"} {
		synctest.Test(t, func(t *testing.T) {
			edge, carrier := bareEdge(), newHands()
			var last error
			for step := range strings.SplitSeq(steps, ", ") {
				last = carrier.do(t, edge, step)
			}
			if last == nil || last.Error() != "connection c1: its rules are of version 1, not 2" {
				t.Errorf("%s: %v", steps, last)
			}
			expect(t, carrier.state(edge), "waits")
			time.Sleep(staleMost)
			synctest.Wait()
			expect(t, carrier.state(edge), "is reset")
		})
	}
}

func TestTwoCarriersMayUseTheSameNumber(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		edge, one, other := bareEdge(), newHands(), newHands()
		must(t, one.take(edge, "c1", 1))
		must(t, other.take(edge, "c1", 1))
		must(t, one.setPolicy(t, edge, 1))
		expect(t, one.state(edge), "is judged by 1, 1 rules")
		expect(t, other.state(edge), "is judged by 1, 1 rules")
		edge.Lose(one)
		expect(t, one.state(edge), "has ended")
		expect(t, other.state(edge), "is judged by 1, 1 rules")
		edge.Lose(other)
	})
}

func TestSoManyConnectionsWaitForTheirPolicy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		edge, carrier := bareEdge(), newHands()
		for i := range connectionsMost {
			must(t, carrier.take(edge, strconv.Itoa(i), 1))
		}
		if carrier.take(edge, "more", 1) == nil {
			t.Error("there is one more")
		}
		if _, err := carrier.ends["more"].Read(make([]byte, 1)); err != io.EOF {
			t.Errorf("it ended with %v", err)
		}
		must(t, carrier.setPolicy(t, edge, 1))
		expect(t, len(edge.sandboxes["s"].connections), connectionsMost)
		expect(t, edge.lobby.count, 0)
		edge.Lose(carrier)
		synctest.Wait()
		expect(t, len(edge.sandboxes["s"].connections), 0)
	})
}

func TestAPolicyAndItsRulesMayComeAtOnce(t *testing.T) {
	edge, carrier := bareEdge(), newHands()
	defer edge.Lose(carrier)
	must(t, carrier.setPolicy(t, edge, 1))
	must(t, carrier.take(edge, "c1", 1))
	for version := int64(2); version < 100; version++ {
		var both sync.WaitGroup
		both.Go(func() {
			if err := carrier.setPolicy(t, edge, version); err != nil {
				t.Error(err)
			}
		})
		if err := carrier.do(t, edge, fmt.Sprint("rules ", version)); err != nil {
			t.Error(err)
		}
		both.Wait()
		expect(t, carrier.state(edge), fmt.Sprintf("is judged by %d, 1 rules", version))
	}
}
