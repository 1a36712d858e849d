package guest

import (
	"errors"
	"io"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"atoll/edge/forms"
)

func TestWithoutRulesAGuestReachesWhatIsPublic(t *testing.T) {
	w := newWorld(t)
	guest, server := w.open("203.0.113.7")
	flows := w.Flows()
	port := guest.LocalAddr().(*net.TCPAddr).AddrPort().Port()
	if len(flows) != 1 || flows[0].GuestPort != port || flows[0].To.String() != "203.0.113.7:443" {
		t.Errorf("the flows are %v", flows)
	}
	server.Close()
	guest.Close()
	eventually(t, "no connection is open", func() bool { return len(w.Flows()) == 0 })
	for _, private := range []string{"10.0.0.1", "127.0.0.1", "169.254.169.254", "203.0.113.200"} {
		w.isRefused(private)
	}
	if told := w.owner.reasons(); len(told) != 4 || told[0] != "deny: 10.0.0.1 is private" {
		t.Errorf("only refusals are told: %q", told)
	}
}

func TestANameLeadsToWhereItPoints(t *testing.T) {
	w := newWorld(t, `{"action":"allow","hosts":["api.example.com"]}`)
	guest := w.connect(named)
	server := w.accept()
	server.Write([]byte("220 ready"))
	if heard := make([]byte, 9); true {
		if _, err := io.ReadFull(guest, heard); err != nil {
			t.Fatal(err)
		}
	}
	w.isRefused("198.18.0.9")
	w.isRefused("203.0.113.7")
	if !slices.Contains(w.owner.reasons(), "deny: the address stands for no name: resolve the name again") {
		t.Errorf("told %q", w.owner.reasons())
	}
}

func TestWhatAsksForAnotherNameReachesNobody(t *testing.T) {
	w := newWorld(t, `{"action":"allow","hosts":["api.example.com"]}`)
	guest := w.connect(named)
	server := w.accept()
	guest.Write([]byte("\x16\x03\x01\x00\x04\x02\x00\x00\x00"))
	isReset(t, guest)
	if heard, _ := io.ReadAll(server); len(heard) > 0 {
		t.Errorf("the server heard %q", heard)
	}
	eventually(t, "it is told", func() bool {
		return slices.Contains(w.owner.reasons(), "deny: it does not ask for api.example.com")
	})
}

func TestPlainRequestsByNameGoToTheEdgeWithWhatWasSaid(t *testing.T) {
	w := newWorld(t, `{"action":"allow","hosts":["api.example.com"]}`)
	guest := w.connect(named)
	w.accept()
	request := "GET / HTTP/1.1\r\nHost: api.example.com\r\n\r\n"
	io.WriteString(guest, request[:10])
	time.Sleep(250 * time.Millisecond) // a line without its end goes on after a moment
	io.WriteString(guest, request[10:])
	edge := <-w.edge.taken
	heard := make([]byte, len(request))
	if _, err := io.ReadFull(edge, heard); err != nil || string(heard) != request {
		t.Fatalf("the edge heard %q, %v", heard, err)
	}
	io.WriteString(edge, "HTTP/1.1 200 OK\r\n")
	if _, err := io.ReadFull(guest, make([]byte, 17)); err != nil {
		t.Fatal(err)
	}
	if kept := w.edge.judgesBy(); !slices.Equal(kept.Own, []int{0}) {
		t.Errorf("it keeps the rules %v", kept)
	}
}

func TestAConnectionThatIsInspectedKeepsTheRulesOfNow(t *testing.T) {
	http := `{"action":"allow","hosts":["api.example.com"],"protocol":"http"}`
	w := newWorld(t, http)
	guest := w.connect(named)
	edge := <-w.edge.taken
	exchange(t, guest, edge)
	w.set(`{"action":"deny","hosts":["other.example"]}`, http)
	if kept := w.edge.judgesBy(); !slices.Equal(kept.Own, []int{1}) {
		t.Errorf("it keeps the rules %v", kept)
	}
	isOpen(t, guest)
	w.set(`{"action":"deny","hosts":["*"]}`)
	isReset(t, guest)
}

func TestNothingPassesThatAnEdgeThatDoesNotRunIsToJudge(t *testing.T) {
	w := newWorld(t, `{"action":"allow","hosts":["api.example.com"],"protocol":"http"}`)
	first := w.connect(named)
	exchange(t, first, <-w.edge.taken)
	w.edge.mu.Lock()
	w.edge.down = true
	w.edge.mu.Unlock()
	w.ResetInspected()
	isReset(t, first)
	w.isRefused(named)
}

func TestAnOpenConnectionEndsWhenNoRuleAllowsItAnyMore(t *testing.T) {
	w := newWorld(t, `{"action":"allow","addresses":["203.0.113.0/24"]}`)
	kept, _ := w.open("203.0.113.7")
	lost, _ := w.open("203.0.113.9")
	w.set(`{"action":"allow","addresses":["203.0.113.7/32"]}`)
	isReset(t, lost)
	isOpen(t, kept)
}

func TestGoingToATrapUnplugs(t *testing.T) {
	w := newWorld(t, `{"action":"unplug","addresses":["203.0.113.66/32"]}`, `{"action":"allow"}`)
	w.isRefused("203.0.113.66")
	eventually(t, "it is unplugged", func() bool {
		w.owner.mu.Lock()
		defer w.owner.mu.Unlock()
		return len(w.owner.unplugged) == 1 && strings.HasPrefix(w.owner.unplugged[0], "rule 1 unplugs")
	})
}

func TestACanaryInWhatTheEdgeDoesNotSeeUnplugs(t *testing.T) {
	for _, place := range []string{named, "203.0.113.7"} {
		w := newWorld(t)
		w.canaries = forms.NewFinder([][]byte{[]byte("canary-value")})
		w.set(`{"action":"allow","hosts":["api.example.com"]}`, `{"action":"allow","addresses":["203.0.113.0/24"]}`)
		guest := w.connect(place)
		server := w.accept()
		server.Write([]byte("220 ready"))
		if _, err := io.ReadFull(guest, make([]byte, 9)); err != nil {
			t.Fatal(err)
		}
		guest.Write([]byte("LOGIN canary-value\r\n"))
		isReset(t, guest)
		if heard, _ := io.ReadAll(server); len(heard) > 0 {
			t.Errorf("the server heard %q", heard)
		}
		reason := "a canary appeared in a connection to " + map[bool]string{true: "api.example.com", false: place}[place == named]
		eventually(t, "it is unplugged, and told", func() bool {
			w.owner.mu.Lock()
			defer w.owner.mu.Unlock()
			last := len(w.owner.told) - 1
			return slices.Equal(w.owner.unplugged, []string{reason}) && w.owner.told[last].Admission.Action == "unplug" &&
				w.owner.told[last].Admission.Reason == reason
		})
	}
}

func TestWithoutRulesNothingIsSearched(t *testing.T) {
	w := newWorld(t)
	w.canaries = forms.NewFinder([][]byte{[]byte("ping")})
	w.set()
	w.open("203.0.113.7")
}

func TestACutGuestReachesNothing(t *testing.T) {
	w := newWorld(t)
	guest, _ := w.open("203.0.113.7")
	w.Egress.Cut(true)
	w.Reset()
	isReset(t, guest)
	w.isRefused("203.0.113.7")
	w.Egress.Cut(false)
	w.open("203.0.113.7")
}

func TestAGuestThatSleepsIsToldWhatEndedMeanwhile(t *testing.T) {
	w := newWorld(t)
	open, _ := w.open("203.0.113.7")
	w.Hold()
	refused := w.connect("10.0.0.1")
	eventually(t, "it is refused", func() bool { return len(w.owner.reasons()) == 1 })
	w.set(`{"action":"deny"}`)
	isOpen(t, open)
	isOpen(t, refused)
	w.Release()
	isReset(t, open)
	isReset(t, refused)
}

func TestAGuestWhoseConnectionsAreOverIsKeptForNothing(t *testing.T) {
	w := newWorld(t)
	guest, server := w.open("203.0.113.7")
	known := w.Flows()
	w.Hold()
	if _, ok := w.Kept(known); ok {
		t.Error("a connection that is open is kept")
	}
	server.SetLinger(0)
	server.Close()
	eventually(t, "it can only be reset", func() bool {
		kept, ok := w.Kept(known)
		return ok && kept == 1
	})
	if _, ok := w.Kept(nil); ok {
		t.Error("a connection of which nobody knows is kept")
	}
	guest.Close()
}

func TestDataForAGuestThatSleepsWakesItOnce(t *testing.T) {
	w := newWorld(t)
	_, one := w.open("203.0.113.7")
	_, other := w.open("203.0.113.8")
	w.Watch()
	w.Hold()
	w.Watch()
	other.Write([]byte("wake"))
	one.Write([]byte("up"))
	woken := func() []string {
		w.owner.mu.Lock()
		defer w.owner.mu.Unlock()
		return w.owner.woken
	}
	eventually(t, "it is woken", func() bool { return len(woken()) == 1 })
	time.Sleep(50 * time.Millisecond)
	if len(woken()) != 1 || !strings.HasPrefix(woken()[0], "203.0.113.") {
		t.Errorf("woken by %q", woken())
	}
}

func TestDataThatIsNotAllowedAnyMoreWakesNobody(t *testing.T) {
	w := newWorld(t)
	_, server := w.open("203.0.113.7")
	w.Hold()
	w.set(`{"action":"deny"}`)
	w.Watch()
	server.Write([]byte("wake"))
	time.Sleep(100 * time.Millisecond)
	w.owner.mu.Lock()
	defer w.owner.mu.Unlock()
	if len(w.owner.woken) > 0 {
		t.Errorf("woken by %q", w.owner.woken)
	}
}

func TestWhatIsNotReachedIsReset(t *testing.T) {
	w := newWorld(t)
	w.mu.Lock()
	w.fails = errors.New("nothing answers there")
	w.mu.Unlock()
	w.isRefused("203.0.113.7")
	eventually(t, "no connection is open", func() bool { return len(w.Flows()) == 0 })
}

func TestAGuestHasOnlySoManyConnections(t *testing.T) {
	w := newWorld(t)
	go func() {
		for {
			if _, err := w.server.AcceptTCP(); err != nil {
				return
			}
		}
	}()
	var all []*net.TCPConn
	for range connectionsAtOnce {
		all = append(all, w.connect("203.0.113.7"))
	}
	eventually(t, "all are open", func() bool { return len(w.Flows()) == connectionsAtOnce })
	for _, each := range all {
		each.Close()
	}
	eventually(t, "none is open", func() bool { return len(w.Flows()) == 0 })
}

func TestAConnectionThatIsGivenUpWhileItIsMadeIsReset(t *testing.T) {
	w := newWorld(t, `{"action":"allow","hosts":["api.example.com"],"protocol":"http"}`)
	w.edge.comes = make(chan struct{})
	guest := w.connect(named)
	eventually(t, "it is being made", func() bool { return len(w.Flows()) == 1 })
	w.Reset()
	close(w.edge.comes)
	<-w.edge.taken
	isReset(t, guest)
	eventually(t, "no connection is open", func() bool { return len(w.Flows()) == 0 })
}
