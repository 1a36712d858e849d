package home

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"sync"
	"testing"

	"github.com/miekg/dns"
	"golang.org/x/sys/unix"

	"atoll/channel"
	"atoll/relay/control"
	"atoll/relay/guest"
	"atoll/relay/splice"
)

// fakeEdges hand the other end of what they take to the test.
type fakeEdges struct {
	taken    chan net.Conn
	attached chan *channel.Channel
	lost     func(pair string)

	mu     sync.Mutex
	events []string
}

func (e *fakeEdges) note(text string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.events = append(e.events, text)
}

func (e *fakeEdges) noted() []string {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.Clone(e.events)
}

func (e *fakeEdges) Attach(to *channel.Channel, _ string) { e.attached <- to }

func (e *fakeEdges) Pair() string { return "" }

func (e *fakeEdges) OnLost(tell func(string)) { e.lost = tell }

func (e *fakeEdges) Side(sandbox string, _ *guest.Guest) Side {
	e.note("side of " + sandbox)
	return &fakeSide{e, sandbox}
}

type fakeSide struct {
	edges   *fakeEdges
	sandbox string
}

func (s *fakeSide) Take(context.Context, *guest.Connection) (splice.End, error) {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	var ends [2]net.Conn
	for i, fd := range pair {
		if ends[i], err = channel.Stream(os.NewFile(uintptr(fd), "edge")); err != nil {
			return nil, err
		}
	}
	s.edges.taken <- ends[0]
	return ends[1].(*net.UnixConn), nil
}

func (s *fakeSide) JudgeBy(*guest.Connection) { s.edges.note("judge " + s.sandbox) }

func (s *fakeSide) Close() { s.edges.note("close " + s.sandbox) }

func TestRequestsAreJudgedByTheEdgeOfTheSandbox(t *testing.T) {
	edges := &fakeEdges{taken: make(chan net.Conn, 1), attached: make(chan *channel.Channel, 1)}
	w := newWorld(t, edges)
	owner := w.owner()
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	must(t, err)
	theirs := os.NewFile(uintptr(pair[0]), "channel")
	defer theirs.Close()
	ours, err := channel.Open(os.NewFile(uintptr(pair[1]), "channel"))
	must(t, err)
	defer ours.Close()
	must(t, owner.do(control.Message{Op: "edge"}, nil, theirs))
	attached := <-edges.attached
	defer attached.Close()
	must(t, attached.Send("hello"))
	var heard string
	if _, err := ours.Receive(&heard); err != nil || heard != "hello" {
		t.Errorf("the edge hears %q, %v", heard, err)
	}

	link, _, to := w.local(owner, "one")
	judged := fmt.Sprintf(
		`{"own":{"rules":[{"action":"allow","hosts":["host.atoll.internal"],"ports":[%d],"protocol":"http"}]}}`, to.Port(),
	)
	owner.rules("one", judged)
	guest := w.visit(link, to)
	exchange(t, guest, <-edges.taken)
	owner.rules("one", judged)
	must(t, owner.do(control.Message{Op: "unlink", Link: "one"}, nil))
	isReset(t, guest)
	want := []string{"side of s-one", "judge s-one", "close s-one"}
	if noted := edges.noted(); !slices.Equal(noted, want) {
		t.Errorf("the edge notes %q", noted)
	}
}

func TestAGuestWithModelsReachesTheirGatewayWhateverItsRules(t *testing.T) {
	edges := &fakeEdges{taken: make(chan net.Conn, 1)}
	w := newWorld(t, edges)
	owner := w.owner()
	link := owner.add("one")
	const name = "models.atoll.internal"
	for _, rules := range []string{`{"own":{"rules":[]}}`, `{}`, `{"models":[]}`} {
		owner.rules("one", rules)
		if reply := link.ask(t, name, dns.TypeA); reply.Rcode != dns.RcodeNameError {
			t.Errorf("with %s: %v", rules, reply)
		}
	}
	const models = `"models":[{"provider":"openai","host":"127.0.0.1","port":9}]`
	for _, rules := range []string{`{"own":{"rules":[]},` + models + `}`, `{` + models + `}`} {
		owner.rules("one", rules)
		guest := w.visit(link, netip.AddrPortFrom(owner.knows("one", name), 80))
		exchange(t, guest, <-edges.taken)
		w.isRefused(link, netip.AddrPortFrom(owner.knows("one", name), 443))
		must(t, owner.do(control.Message{Op: "cut", Link: "one"}, nil))
		isReset(t, guest)
		w.isRefused(link, netip.AddrPortFrom(owner.knows("one", name), 80))
		must(t, owner.do(control.Message{Op: "mend", Link: "one"}, nil))
	}
	for _, nowhere := range []string{`{"provider":"","host":"a","port":1}`, `{"provider":"a","host":"","port":1}`, `{"provider":"a","host":"a","port":0}`} {
		message := control.Message{Op: "rules", Link: "one", Sandbox: "s-one", Version: 9}
		if err := owner.with(message, json.RawMessage(`{"models":[`+nowhere+`]}`)); err == nil {
			t.Errorf("%s is somewhere", nowhere)
		}
	}
}

func TestTheOwnerIsToldWhenTheEdgeIsGone(t *testing.T) {
	edges := &fakeEdges{}
	w := newWorld(t, edges)
	edges.lost("first") // nobody is there yet: the next owner sees it in the answer to hello
	first := w.owner()
	must(t, first.do(control.Message{Op: "forget_names"}, nil))
	select {
	case told := <-first.events:
		t.Errorf("it is told %+v", told)
	default:
	}
	edges.lost("second")
	first.hears(func(told event) bool { return told.Op == "parted" && told.Pair == "second" })
}

func TestALinkOfAnotherSandboxHasASideOfItsOwn(t *testing.T) {
	edges := &fakeEdges{}
	w := newWorld(t, edges)
	owner := w.owner()
	owner.add("one")
	for i, sandbox := range []string{"a", "a", "b", ""} {
		message := control.Message{Op: "rules", Link: "one", Sandbox: sandbox, Version: int64(i)}
		must(t, owner.with(message, control.Rules{}))
	}
	want := []string{"side of a", "close a", "side of b", "close b"}
	if noted := edges.noted(); !slices.Equal(noted, want) {
		t.Errorf("the edge notes %q", noted)
	}
}

func TestWithoutAnEdgeNothingPassesThatNeedsOne(t *testing.T) {
	w := newWorld(t, nil)
	owner := w.owner()
	link, _, to := w.local(owner, "one")
	owner.rules("one", `{"own":{"rules":[{"action":"allow","hosts":["host.atoll.internal"],"ports":["1-65535"],"protocol":"http"}]}}`)
	w.isRefused(link, to)
}
