package neighbour

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	"atoll/channel"
	"atoll/edge/control"
	"atoll/relay/guest"
)

// fakeGuest notes what it is asked, and connects to a server of the test.
type fakeGuest struct {
	server string

	mu      sync.Mutex
	asked   []string
	fails   error
	dialing int
	most    int           // dials at once
	opens   chan struct{} // a dial goes on when it gets something; nil: at once
}

func (g *fakeGuest) note(what string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.asked = append(g.asked, what)
}

func (g *fakeGuest) noted() []string {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.Clone(g.asked)
}

func (g *fakeGuest) ResetInspected()           { g.note("reset all") }
func (g *fakeGuest) ResetConnection(id string) { g.note("reset " + id) }

func (g *fakeGuest) DialProvider(_ context.Context, id, provider string) (*net.TCPConn, error) {
	g.note("dial " + provider + " for " + id)
	return nil, errors.New("it is not there")
}

func (g *fakeGuest) DialInspected(ctx context.Context, id string) (*net.TCPConn, error) {
	g.mu.Lock()
	g.asked = append(g.asked, "dial "+id)
	fails := g.fails
	g.dialing++
	g.most = max(g.most, g.dialing)
	g.mu.Unlock()
	defer func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		g.dialing--
	}()
	if g.opens != nil {
		select {
		case <-g.opens:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
	if fails != nil {
		return nil, fails
	}
	made, err := net.Dial("tcp", g.server)
	if err != nil {
		return nil, err
	}
	return made.(*net.TCPConn), nil
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// channels is both ends of a new channel.
func channels(t *testing.T) (ours, theirs *channel.Channel) {
	t.Helper()
	ends, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	must(t, err)
	ours, err = channel.Open(os.NewFile(uintptr(ends[0]), "relay"))
	must(t, err)
	theirs, err = channel.Open(os.NewFile(uintptr(ends[1]), "edge"))
	must(t, err)
	t.Cleanup(func() { ours.Close(); theirs.Close() })
	return ours, theirs
}

func receive(t *testing.T, from *channel.Channel) (*control.Message, *os.File) {
	t.Helper()
	message, file, err := control.Receive(from)
	must(t, err)
	return message, file
}

func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); !is(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("never so: " + what)
		}
	}
}

func TestOnlyTheProcessThatAskedIsAnswered(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	defer listener.Close()
	n, g := New(), &fakeGuest{server: listener.Addr().String(), opens: make(chan struct{}, 1)}
	defer n.Side("s", g).Close()
	first, asking := channels(t)
	n.Attach(first, "p")
	must(t, asking.Send(control.Dial{Op: "dial", ID: 1, Sandbox: "s", Connection: "c1"}))
	eventually(t, "it connects", func() bool { return slices.Equal(g.noted(), []string{"dial c1"}) })
	second, next := channels(t)
	n.Attach(second, "p")
	if _, _, err := control.Receive(asking); !errors.Is(err, io.EOF) {
		t.Errorf("the channel of the one before ended with %v", err)
	}
	must(t, next.Send(control.Dial{Op: "dial", ID: 1, Sandbox: "s", Connection: "c2"}))
	eventually(t, "it connects", func() bool { return slices.Contains(g.noted(), "dial c2") })
	eventually(t, "the one before is not connected for", func() bool {
		g.mu.Lock()
		defer g.mu.Unlock()
		return g.dialing == 1
	})
	g.opens <- struct{}{}
	answer, file := receive(t, next)
	if answer.Op != "dialled" || answer.ID != 1 || answer.Error != "" || file == nil {
		t.Errorf("the answer is %+v", answer)
	}
	file.Close()
	if want := []string{"dial c1", "reset all", "dial c2"}; !slices.Equal(g.noted(), want) {
		t.Errorf("the guest was asked %q", g.noted())
	}
}

func TestWhyAConnectionIsNotMade(t *testing.T) {
	n, g := New(), &fakeGuest{}
	side := n.Side("s", g)
	ours, theirs := channels(t)
	n.Attach(ours, "p")
	for _, c := range []struct {
		sandbox string
		fails   error
		want    string
	}{
		{"s", &guest.RefusedError{Reason: "rule 1 denies it"}, "rule 1 denies it, refused true"},
		{"s", fmt.Errorf("on the way: %w", &guest.RefusedError{Reason: "no"}), "on the way: no, refused true"},
		{"s", unix.ECONNREFUSED, "connection refused, refused false"},
		{"gone", nil, "the sandbox is gone, refused false"},
	} {
		g.mu.Lock()
		g.fails = c.fails
		g.mu.Unlock()
		must(t, theirs.Send(control.Dial{Op: "dial", ID: 7, Sandbox: c.sandbox, Connection: "c1"}))
		answer, file := receive(t, theirs)
		got := fmt.Sprintf("%s, refused %t", answer.Error, answer.Refused)
		if got != c.want || answer.ID != 7 || file != nil {
			t.Errorf("the answer is %q, not %q", got, c.want)
		}
	}
	must(t, theirs.Send(control.Reset{Op: "reset", Sandbox: "s", Connection: "c1"}))
	must(t, theirs.Send(control.Reset{Op: "reset", Sandbox: "gone", Connection: "c2"}))
	must(t, theirs.Send(control.Reset{Op: "what", Sandbox: "s", Connection: "c3"}))
	eventually(t, "it is reset", func() bool { return slices.Contains(g.noted(), "reset c1") })
	side.Close()
	must(t, theirs.Send(control.Dial{Op: "dial", ID: 8, Sandbox: "s", Connection: "c1"}))
	if answer, _ := receive(t, theirs); answer.Error != "the sandbox is gone" {
		t.Errorf("a side that is closed answers %q", answer.Error)
	}
}

func TestOnlySoManyConnectionsAreMadeAtOnce(t *testing.T) {
	n, g := New(), &fakeGuest{fails: errors.New("no"), opens: make(chan struct{})}
	defer n.Side("s", g).Close()
	ours, theirs := channels(t)
	n.Attach(ours, "p")
	const more = 10
	go func() {
		for id := range int64(dialsMost + waitingMost + more) {
			if theirs.Send(control.Dial{Op: "dial", ID: id, Sandbox: "s", Connection: "c"}) != nil {
				return
			}
		}
	}()
	for range more { // those beyond the bound are answered before any other
		if answer, _ := receive(t, theirs); answer.Error != "too many connections are being made for the sandbox" {
			t.Fatalf("the answer is %+v", answer)
		}
	}
	close(g.opens)
	for range dialsMost + waitingMost {
		if answer, _ := receive(t, theirs); answer.Error != "no" {
			t.Fatalf("the answer is %+v", answer)
		}
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.most > dialsMost {
		t.Errorf("%d were made at once", g.most)
	}
}

func TestGuestsHearThatTheirEdgeEnded(t *testing.T) {
	for name, end := range map[string]func(*channel.Channel){
		"closed":  func(theirs *channel.Channel) { theirs.Close() },
		"no JSON": func(theirs *channel.Channel) { _ = theirs.Send([]int{1}) },
		"a descriptor": func(theirs *channel.Channel) {
			_ = theirs.Send("no object", os.Stdin)
		},
	} {
		t.Run(name, func(t *testing.T) {
			n, one, other, closed := New(), &fakeGuest{}, &fakeGuest{}, &fakeGuest{}
			n.Side("one", one)
			n.Side("other", closed)
			n.Side("other", other) // in its place
			n.Side("closed", closed).Close()
			ours, theirs := channels(t)
			n.Attach(ours, "p")
			end(theirs)
			eventually(t, "they are reset", func() bool { return len(one.noted()) == 1 && len(other.noted()) == 1 })
			if len(closed.noted()) > 0 {
				t.Errorf("a guest that has gone was asked %q", closed.noted())
			}
			if n.current() != nil {
				t.Error("it goes on")
			}
		})
	}
}

func TestAConnectionWaitsAMomentForAnEdge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := New()
		began := time.Now()
		if _, err := n.await(t.Context()); err != errNoEdge || time.Since(began) != startMost {
			t.Errorf("after %s: %v", time.Since(began), err)
		}
		cause := errors.New("it is reset")
		ctx, cancel := context.WithCancelCause(t.Context())
		time.AfterFunc(time.Second, func() { cancel(cause) })
		if _, err := n.await(ctx); err != cause {
			t.Errorf("it waited until %v", err)
		}
	})
	n := New()
	found := make(chan error, 1)
	go func() {
		_, err := n.await(t.Context())
		found <- err
	}()
	ours, _ := channels(t)
	n.Attach(ours, "p")
	must(t, <-found)
}

func TestAnEdgeThatDoesNotReadKeepsNobodyWaiting(t *testing.T) {
	n := New()
	ours, theirs := channels(t)
	n.Attach(ours, "p")
	to := n.current()
	read, given, err := os.Pipe()
	must(t, err)
	defer read.Close()
	sent := 0
	for ; err == nil && sent < 3*lettersMost; sent++ {
		var file *os.File
		if sent == lettersMost-1 {
			file = given
		}
		err = to.send(control.Message{Op: "rules"}, file)
	}
	if err == nil || sent < lettersMost {
		t.Errorf("%d messages were taken, then %v", sent, err)
	}
	theirs.Close()
	eventually(t, "it is left", func() bool { return n.current() == nil })
	if _, err := read.Read(make([]byte, 1)); err != io.EOF {
		t.Errorf("the descriptor of a message that was not sent is open: %v", err)
	}
	if err := to.send(control.Message{Op: "rules"}, nil); err == nil {
		t.Error("an edge that has ended takes messages")
	}
}

func TestAnEdgeIsAskedWhetherItLives(t *testing.T) {
	for name, c := range map[string]struct {
		does func(theirs *channel.Channel, id int64)
		want bool
	}{
		"it says so": {func(theirs *channel.Channel, id int64) { _ = theirs.Send(control.Alive{Op: "alive", ID: id}) }, true},
		"it ends":    {func(theirs *channel.Channel, _ int64) { theirs.Close() }, false},
	} {
		t.Run(name, func(t *testing.T) {
			n := New()
			ours, theirs := channels(t)
			n.Attach(ours, "p")
			lives := make(chan bool)
			to := n.current()
			go func() { lives <- to.lives(t.Context()) }()
			asked, _ := receive(t, theirs)
			if asked.Op != "alive" {
				t.Errorf("it was asked %+v", asked)
			}
			c.does(theirs, asked.ID)
			if got := <-lives; got != c.want {
				t.Errorf("it lives: %t", got)
			}
			if len(to.asked) > 0 {
				t.Errorf("%d questions are kept", len(to.asked))
			}
		})
	}
	n := New()
	ours, _ := channels(t)
	n.Attach(ours, "p")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if n.current().lives(ctx) {
		t.Error("a connection that was reset waits")
	}
}

func TestThatAnEdgeIsGoneIsToldUnlessAnotherOneHasFollowed(t *testing.T) {
	n, lost := New(), make(chan string, 2)
	n.Lost = func(pair string) { lost <- pair }
	first, _ := channels(t)
	n.Attach(first, "first")
	second, theirs := channels(t)
	n.Attach(second, "second")
	if pair := n.Pair(); pair != "second" {
		t.Errorf("the pair is %q", pair)
	}
	must(t, theirs.Close())
	if pair := <-lost; pair != "second" {
		t.Errorf("the pair %q is lost", pair)
	}
	if pair := n.Pair(); pair != "" || len(lost) > 0 {
		t.Errorf("the pair is %q, told again %d times", pair, len(lost))
	}
}
