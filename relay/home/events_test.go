package home

import (
	"fmt"
	"io"
	"net/netip"
	"strings"
	"testing"

	"github.com/miekg/dns"

	"atoll/channel"
	"atoll/edge/seen"
	"atoll/relay/control"
	"atoll/relay/guest"
)

// trapped is a link whose guest is cut off when it goes to a certain place.
func trapped(w *world, by *client, id string) (link *line, trap netip.AddrPort) {
	w.t.Helper()
	link = by.add(id)
	by.rules(id, `{"own":{"rules":[{"action":"unplug","addresses":["203.0.113.66/32"]},{"action":"allow"}]}}`)
	return link, netip.MustParseAddrPort("203.0.113.66:443")
}

func (w *world) found(id string) *Link {
	w.t.Helper()
	found, err := w.link(id)
	must(w.t, err)
	return found
}

func TestARuleCutsALinkAndItsOwnerIsTold(t *testing.T) {
	w := newWorld(t, nil)
	owner := w.owner()
	link, trap := trapped(w, owner, "one")
	w.isRefused(link, trap)
	// What was decided comes first.
	told := owner.hears(func(told event) bool { return len(told.Entries) > 0 || told.Op == "unplug" })
	if told.Op != "told" || told.Entries[0].Action != "unplug" || told.Entries[0].At == 0 {
		t.Errorf("told %+v", told)
	}
	told = owner.hears(of("unplug"))
	if told.Link != "one" || !strings.HasPrefix(told.Reason, "rule 1 unplugs at 203.0.113.66") {
		t.Errorf("told %+v", told)
	}
	w.isRefused(link, netip.MustParseAddrPort("203.0.113.1:443"))
	if reply := link.ask(t, "example.com", dns.TypeA); reply.Rcode != dns.RcodeNameError {
		t.Errorf("the answer is %v", reply)
	}
}

func TestACanaryInANameCutsALink(t *testing.T) {
	w := newWorld(t, nil)
	owner := w.owner()
	link := owner.add("one")
	owner.rules("one", `{"own":{"rules":[{"action":"allow"}]},"canaries":["canary-value"]}`)
	if reply := link.ask(t, "Canary-.Value.example.com", dns.TypeTXT); reply.Rcode != dns.RcodeNameError {
		t.Errorf("the answer is %v", reply)
	}
	told := owner.hears(of("unplug"))
	if told.Reason != "a canary appeared in a name that was asked for" {
		t.Errorf("told %+v", told)
	}
	eventually(t, "it is cut", func() bool { return w.found("one").egress.Bounds().Name("example.com").Action == "deny" })
}

func TestACanaryInAConnectionCutsALink(t *testing.T) {
	w := newWorld(t, nil)
	owner := w.owner()
	link, server, to := w.local(owner, "one")
	owner.rules("one", fmt.Sprintf(
		`{"own":{"rules":[{"action":"allow","hosts":["host.atoll.internal"],"ports":[%d]}]},"canaries":["canary-value"]}`, to.Port(),
	))
	guest := w.visit(link, to)
	served := accept(t, server)
	exchange(t, guest, served)
	if _, err := guest.Write([]byte("canary-value")); err != nil {
		t.Fatal(err)
	}
	told := owner.hears(of("unplug"))
	if told.Link != "one" || told.Reason != "a canary appeared in a connection to host.atoll.internal" {
		t.Errorf("told %+v", told)
	}
	isReset(t, guest)
	if heard, _ := io.ReadAll(served); len(heard) > 0 {
		t.Errorf("the server heard %q", heard)
	}
	w.isRefused(link, to)
}

func TestWithoutAnOwnerALinkIsCutAndTheNextOwnerIsTold(t *testing.T) {
	w := newWorld(t, nil)
	first := w.owner()
	link, server, to := w.local(first, "open")
	open := w.visit(link, to)
	served := accept(t, server)
	exchange(t, open, served)
	trap, place := trapped(w, first, "one")
	first.Close()
	eventually(t, "the owner is gone", func() bool {
		w.Home.mu.Lock()
		defer w.Home.mu.Unlock()
		return w.Home.owner == nil
	})
	exchange(t, open, served) // guests go on
	w.isRefused(trap, place)
	eventually(t, "it is cut", func() bool { return w.found("one").egress.Bounds().Name("a.x").Action == "deny" })
	w.found("one").Wake("a.x:443")
	for range 2 { // also one that died before it did something about it
		next := w.connect()
		var hello control.Hello
		must(t, next.do(control.Message{Op: "hello", Protocol: control.Protocol}, &hello))
		if fmt.Sprint(hello.Links) != "[one open]" || hello.Protocol != control.Protocol || len(hello.Confined) != 1 {
			t.Errorf("the relay says %+v", hello)
		}
		heard := map[string]bool{}
		for len(heard) < 2 {
			heard[next.hears(func(told event) bool { return told.Op == "unplug" || told.Op == "wake" }).Op] = true
		}
		next.Close()
	}
	next := w.connect()
	must(t, next.do(control.Message{Op: "hello", Protocol: control.Protocol}, nil))
	next.hears(of("unplug"))
	must(t, next.do(control.Message{Op: "cut", Link: "one"}, nil))
	must(t, next.do(control.Message{Op: "release", Link: "one"}, nil))
	last := w.owner()
	w.found("open").Wake("b.x:443") // told after what was there before
	if told := last.hears(func(told event) bool { return told.Op == "unplug" || told.Op == "wake" }); told.Link != "open" {
		t.Errorf("what was settled is told again: %+v", told)
	}
}

func TestAnotherOwnerReplacesTheOneBefore(t *testing.T) {
	w := newWorld(t, nil)
	first := w.owner()
	asker := w.connect()
	second := w.owner()
	<-first.gone
	first.Close()
	second.add("one")
	must(t, asker.do(control.Message{Op: "hold", Link: "one"}, nil)) // who only asks goes on
	w.found("one").Wake("a.x:443")
	second.hears(of("wake"))
	w.found("one").awake()
	must(t, second.do(control.Message{Op: "hello", Protocol: control.Protocol}, nil))
	w.found("one").Wake("b.x:443")
	if told := second.hears(of("wake")); told.From != "b.x:443" {
		t.Errorf("told %+v", told)
	}
}

func TestWhoSpeaksAnotherVersionIsTurnedAway(t *testing.T) {
	w := newWorld(t, nil)
	owner := w.owner()
	other := w.connect()
	err := other.do(control.Message{Op: "hello", Protocol: control.Protocol + 1}, nil)
	if err == nil || !strings.Contains(err.Error(), "protocol 3, and not 4") {
		t.Errorf("it hears %v", err)
	}
	<-other.gone
	owner.add("one") // which is still the owner
	w.found("one").Wake("a.x:443")
	owner.hears(of("wake"))
}

func TestASecondConnectionCutsALinkWhileTheOwnerIsStopped(t *testing.T) {
	w := newWorld(t, nil)
	stopped := w.owner()
	link, server, to := w.local(stopped, "one")
	guest := w.visit(link, to)
	exchange(t, guest, accept(t, server))
	other := w.connect()
	for range 2 {
		must(t, other.do(control.Message{Op: "cut", Link: "one"}, nil))
	}
	isReset(t, guest)
	w.isRefused(link, to)
	var kept struct{ Kept *int }
	file, err := channel.Sealed([]control.Flow{})
	must(t, err)
	defer file.Close()
	must(t, other.do(control.Message{Op: "ask", Link: "one", What: "kept"}, &kept, file))
	if kept.Kept != nil {
		t.Errorf("a link that is cut keeps %d", *kept.Kept)
	}
	var answer struct{ Flows []control.Flow }
	must(t, stopped.do(control.Message{Op: "mend", Link: "one"}, &answer))
	if len(answer.Flows) != 1 || answer.Flows[0].Port != to.Port() {
		t.Errorf("%v were cut", answer.Flows)
	}
	exchange(t, w.visit(link, to), accept(t, server))
}

func TestAnOwnerThatReadsNothingStopsNobody(t *testing.T) {
	w := newWorld(t, nil)
	deaf := w.deaf()
	must(t, deaf.Send(control.Message{Op: "hello", ID: 1, Protocol: control.Protocol}))
	eventually(t, "it is the owner", func() bool {
		w.Home.mu.Lock()
		defer w.Home.mu.Unlock()
		return w.Home.owner != nil
	})
	other := w.connect()
	link, server, to := w.local(other, "one")
	// More than fits into a socket, or may be kept.
	one := w.found("one")
	for i := range 20_000 {
		one.Tell(guest.Told{Host: fmt.Sprint("host", i), Port: i, Scheme: "tcp"})
		w.events.log(strings.Repeat("x", 2*textMost))
		one.Wake(strings.Repeat("w", 2*textMost))
		if i%1000 == 0 {
			one.awake()
		}
	}
	w.events.mu.Lock()
	logs, dropped, fresh := len(w.events.logs), w.events.dropped, len(w.events.fresh)
	w.events.mu.Unlock()
	if logs > logsMost || dropped == 0 || fresh > 1 {
		t.Errorf("%d logs, %d dropped, %d links with news", logs, dropped, fresh)
	}
	exchange(t, w.visit(link, to), accept(t, server))
	one.Unplug("for this test")
	reader := w.connect()
	must(t, reader.do(control.Message{Op: "hello", Protocol: control.Protocol}, nil))
	var isCounted, isUnplugged, isWoken, isLogged bool
	reader.hears(func(told event) bool {
		for _, each := range told.Entries {
			isCounted = isCounted || each.Count > 1000 && strings.HasPrefix(each.Reason, "more kinds")
		}
		isUnplugged = isUnplugged || told.Op == "unplug" && told.Reason == "for this test"
		isWoken = isWoken || told.Op == "wake" && len(told.From) == textMost
		isLogged = isLogged || strings.HasPrefix(told.Text, "more was to be logged")
		return isCounted && isUnplugged && isWoken && isLogged
	})
}

func TestDecisionsAreCountedBetweenTwoMessages(t *testing.T) {
	w := newWorld(t, nil)
	owner := w.owner()
	owner.add("one")
	one := w.found("one")
	tell := func(host string) { one.Tell(guest.Told{Host: host, Port: 443, Scheme: "tcp"}) }
	tell("first")
	owner.decision(func(each seen.Entry) bool { return each.Host == "first" })
	for range 100 {
		tell("second")
	}
	count, messages := 0, 0
	owner.hears(func(told event) bool {
		messages++
		for _, each := range told.Entries {
			count += each.Count
		}
		return count == 100
	})
	if messages > 2 {
		t.Errorf("it takes %d messages", messages)
	}
	for range 150 {
		tell(strings.Repeat("<", 1000)) // each is longer in JSON
		tell(strings.Repeat("&", 900) + fmt.Sprint(count))
		count++
	}
	owner.hears(func(told event) bool {
		for _, each := range told.Entries {
			if strings.HasPrefix(each.Host, "&") {
				count--
			}
		}
		return count == 100
	})
}

func TestWhatIsDecidedWithoutAnOwnerIsKeptForTheNextOneInItsOrder(t *testing.T) {
	w := newWorld(t, nil)
	first := w.owner()
	first.add("one")
	first.Close()
	eventually(t, "the owner is gone", func() bool {
		w.Home.mu.Lock()
		defer w.Home.mu.Unlock()
		return w.Home.owner == nil
	})
	one := w.found("one")
	var kept []seen.Entry
	for i := range 1000 {
		kept = append(kept, seen.Entry{At: float64(i + 1), Until: float64(i + 2), Host: fmt.Sprint(i), Action: "allow", Count: 1})
	}
	one.news.seen.Return(kept)
	if !one.Tell(guest.Told{Host: "last", Scheme: "tcp"}) {
		t.Error("there is no room")
	}
	w.events.restore([]any{"no decision", decided{control.Told{Entries: []seen.Entry{{Host: "not sent", Until: 1}}}, one.news}})
	next := w.connect()
	must(t, next.do(control.Message{Op: "hello", Protocol: control.Protocol}, nil))
	var hosts []string
	next.hears(func(told event) bool {
		for _, each := range told.Entries {
			hosts = append(hosts, each.Host)
		}
		return len(hosts) == 1002
	})
	if hosts[0] != "not sent" || hosts[1] != "0" || hosts[1000] != "999" || hosts[1001] != "last" {
		t.Errorf("told %q", hosts)
	}
}

func TestALinkWithoutRoomForItsDecisionsPassesNothing(t *testing.T) {
	w := newWorld(t, nil)
	owner := w.owner()
	link, server, to := w.local(owner, "one")
	one := w.found("one")
	w.events.mu.Lock() // nobody takes it before the guest comes
	one.news.seen.Room = seen.RoomOf(800)
	one.news.seen.Return([]seen.Entry{{At: 1, Until: 2, Host: "long ago", Action: "allow", Count: 1}})
	w.events.mu.Unlock()
	w.isRefused(link, to)
	owner.decision(func(each seen.Entry) bool { return strings.HasPrefix(each.Reason, "refused, as there is no room") })
	guest := w.visit(link, to) // the owner has taken all
	exchange(t, guest, accept(t, server))
}
