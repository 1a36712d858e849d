package home

import (
	"encoding/json"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/miekg/dns"

	"atoll/channel"
	"atoll/edge/seen"
	"atoll/relay/control"
)

func TestWhatComesBeforeTheFirstRulesWaitsForThem(t *testing.T) {
	w := newWorld(t, nil)
	owner := w.owner()
	link := owner.add("one")
	early := w.visit(link, netip.MustParseAddrPort("203.0.113.1:443"))
	must(t, owner.do(control.Message{Op: "hold", Link: "one"}, nil))
	must(t, owner.do(control.Message{Op: "release", Link: "one"}, nil))
	owner.rules("one", `{"own":{"rules":[]}}`)
	isReset(t, early)
	told := owner.decision(reason("no rule allows 203.0.113.1:443"))
	if told.Action != "deny" || told.Scheme != "tcp" || told.Port != 443 || told.Count != 1 {
		t.Errorf("told %+v", told)
	}
	if reply := link.ask(t, "example.com", dns.TypeA); reply.Rcode != dns.RcodeNameError {
		t.Errorf("the answer is %v", reply)
	}
	owner.decision(reason("no rule allows example.com"))
}

func TestAGuestReachesWhatItsRulesAllow(t *testing.T) {
	w := newWorld(t, nil)
	owner := w.owner()
	link, server, to := w.local(owner, "one")
	guest := w.visit(link, to)
	exchange(t, guest, accept(t, server))
	told := owner.decision(func(each seen.Entry) bool { return each.Action == "allow" })
	if told.Host != "host.atoll.internal" || told.Rule == nil || *told.Rule != 0 {
		t.Errorf("told %+v", told)
	}
	var answer struct{ Flows []control.Flow }
	must(t, owner.do(control.Message{Op: "ask", Link: "one", What: "flows"}, &answer))
	if len(answer.Flows) != 1 || answer.Flows[0].Address != to.Addr() || answer.Flows[0].Port != to.Port() {
		t.Errorf("the flows are %v", answer.Flows)
	}
	// This host's loopback is closed to whoever does not ask by name.
	w.isRefused(link, netip.AddrPortFrom(netip.MustParseAddr("127.0.0.1"), to.Port()))
	owner.rules("one", `{"own":{"rules":[]}}`)
	isReset(t, guest)
}

func TestRulesThatCannotBeReadAllowNothing(t *testing.T) {
	w := newWorld(t, nil)
	owner := w.owner()
	for i, text := range []string{`{"own":{"rules":[{"action":7}]}}`, `{"proxy":{"url":"x"}}`, `[]`} {
		id := fmt.Sprint("link", i)
		link, server, to := w.local(owner, id)
		guest := w.visit(link, to)
		exchange(t, guest, accept(t, server))
		if owner.with(control.Message{Op: "rules", Link: id, Sandbox: "s"}, json.RawMessage(text)) == nil {
			t.Errorf("%s are rules", text)
		}
		isReset(t, guest)
		w.isRefused(link, to)
	}
}

func TestTheKernelsSilenceMeansThatNothingIsConnectedTo(t *testing.T) {
	w := newWorld(t, nil)
	owner := w.owner()
	link := owner.add("one")
	owner.rules("one", `{}`)
	w.kernel.mu.Lock()
	w.kernel.fails = fmt.Errorf("no answer")
	w.kernel.mu.Unlock()
	w.isRefused(link, netip.MustParseAddrPort("203.0.113.1:443"))
	owner.hears(func(told event) bool {
		return told.Op == "log" && strings.Contains(told.Text, "no answer") || len(told.Entries) > 0
	})
	must(t, owner.with(control.Message{Op: "settings"}, json.RawMessage(`{"foreign":["203.0.113.0/24"]}`)))
	if isOwn := w.outside.isOwn(netip.MustParseAddr("203.0.113.1")); isOwn {
		t.Error("what is said to be foreign is this host's own")
	}
	if isOwn := w.outside.isOwn(netip.MustParseAddr("::ffff:203.0.113.1")); isOwn {
		t.Error("what is said to be foreign is this host's own, in another form")
	}
}

func TestEverythingThatIsAskedOfALinkIsAnswered(t *testing.T) {
	w := newWorld(t, nil)
	owner := w.owner()
	link, server, to := w.local(owner, "one")
	guest := w.visit(link, to)
	served := accept(t, server)
	exchange(t, guest, served)
	asked := func(what string, content any) map[string]json.RawMessage {
		t.Helper()
		var files []*os.File
		if content != nil {
			file, err := channel.Sealed(content)
			must(t, err)
			defer file.Close()
			files = append(files, file)
		}
		var got map[string]json.RawMessage
		must(t, owner.do(control.Message{Op: "ask", Link: "one", What: what}, &got, files...))
		if len(got) != 1 {
			t.Errorf("%s: %s", what, got)
		}
		return got
	}
	var flows []control.Flow
	must(t, json.Unmarshal(asked("flows", nil)["flows"], &flows))
	must(t, owner.do(control.Message{Op: "hold", Link: "one"}, nil))
	if kept := asked("kept", flows)["kept"]; string(kept) != "null" {
		t.Errorf("an open connection is kept: %s", kept)
	}
	eventually(t, "nothing is on its way any more", func() bool {
		return string(asked("owes", nil)["owes"]) == "false"
	})
	if asks := asked("asked", nil)["asked"]; string(asks) != "false" {
		t.Errorf("asked: %s", asks)
	}
	if text := asked("fresh", nil)["fresh"]; !slices.Contains([]string{"true", "false"}, string(text)) {
		t.Errorf("fresh: %s", text)
	}
	if names := asked("names", nil)["names"]; string(names) != `[{"address":"198.18.0.1","name":"host.atoll.internal"}]` {
		t.Errorf("names: %s", names)
	}
	must(t, served.SetLinger(0))
	served.Close()
	eventually(t, "it would only be reset", func() bool { return string(asked("kept", flows)["kept"]) == "1" })
	if kept := asked("kept", []control.Flow{})["kept"]; string(kept) != "null" {
		t.Errorf("a connection that nobody knows is kept: %s", kept)
	}
	must(t, owner.do(control.Message{Op: "release", Link: "one"}, nil))
	isReset(t, guest)
	if err := owner.do(control.Message{Op: "ask", Link: "one", What: "money"}, nil); err == nil {
		t.Error("what nobody knows is answered")
	}
}

func TestManyNamesComeAndGoBesideTheMessage(t *testing.T) {
	w := newWorld(t, nil)
	owner := w.owner()
	link := owner.add("one")
	first := netip.MustParseAddr("198.18.0.1")
	want := make([]control.Name, 8192)
	for i := range want {
		want[i] = control.Name{Address: first, Name: fmt.Sprintf("%s%04d.example", strings.Repeat("a.", 120), i)}
		first = first.Next()
	}
	must(t, owner.with(control.Message{Op: "take_over", Link: "one"}, want))
	var got struct{ Names []control.Name }
	must(t, owner.do(control.Message{Op: "ask", Link: "one", What: "names"}, &got))
	if !slices.Equal(got.Names, want) {
		t.Errorf("there are %d names", len(got.Names))
	}
	must(t, owner.do(control.Message{Op: "unlink", Link: "one"}, nil))
	files := link.files(t)
	defer channel.CloseAll(files)
	must(t, owner.do(control.Message{Op: "link", Link: "one"}, nil, files...))
	must(t, owner.do(control.Message{Op: "ask", Link: "one", What: "names"}, &got))
	if !slices.Equal(got.Names, want) {
		t.Errorf("after another start there are %d names", len(got.Names))
	}
}

func TestAGuestThatSleepsIsWokenByWhatComes(t *testing.T) {
	w := newWorld(t, nil)
	owner := w.owner()
	link, server, to := w.local(owner, "one")
	guest := w.visit(link, to)
	served := accept(t, server)
	exchange(t, guest, served)
	for range 2 {
		for _, op := range []string{"hold", "probe", "watch"} {
			must(t, owner.do(control.Message{Op: op, Link: "one"}, nil))
		}
		_, err := served.Write([]byte("w"))
		must(t, err)
		told := owner.hears(of("wake"))
		if told.Link != "one" || told.From != fmt.Sprintf("host.atoll.internal:%d", to.Port()) {
			t.Errorf("told %+v", told)
		}
		must(t, owner.do(control.Message{Op: "release", Link: "one"}, nil))
		if _, err := guest.Read(make([]byte, 1)); err != nil {
			t.Error(err)
		}
	}
	must(t, owner.do(control.Message{Op: "reset", Link: "one"}, nil))
	isReset(t, guest)
}

func TestALinkEndsWithItsConnections(t *testing.T) {
	w := newWorld(t, nil)
	owner := w.owner()
	link, server, to := w.local(owner, "one")
	guest := w.visit(link, to)
	exchange(t, guest, accept(t, server))
	must(t, owner.do(control.Message{Op: "unlink", Link: "one"}, nil))
	isReset(t, guest)
	if owner.do(control.Message{Op: "hold", Link: "one"}, nil) == nil {
		t.Error("the link is still there")
	}
}

func TestTheHostsNameserversAreAsked(t *testing.T) {
	w := newWorld(t, nil)
	owner := w.owner()
	link := owner.add("one")
	owner.rules("one", `{"own":{"rules":[{"action":"allow","hosts":["*.example.com"]}]}}`)
	at := serveNames(t, "api.example.com. 60 IN A 203.0.113.5", "inner.example.com. 60 IN A 10.0.0.5")
	must(t, owner.with(control.Message{Op: "settings"}, map[string]any{"nameservers": []string{at}}))
	reply := link.ask(t, "api.example.com", dns.TypeA)
	if len(reply.Answer) != 1 || !strings.HasPrefix(reply.Answer[0].(*dns.A).A.String(), "198.18.") {
		t.Errorf("the answer is %v", reply)
	}
	if reply := link.ask(t, "inner.example.com", dns.TypeA); reply.Rcode != dns.RcodeNameError {
		t.Errorf("the answer is %v", reply)
	}
	told := owner.decision(reason("it leads to an address that is private and that no rule opens"))
	if told.Scheme != "dns" || told.Method != "A" || told.Host != "inner.example.com" {
		t.Errorf("told %+v", told)
	}
	must(t, owner.do(control.Message{Op: "forget_names"}, nil))
	owner.rules("one", `{}`) // without rules its questions are passed on
	if reply := link.ask(t, "inner.example.com", dns.TypeA); len(reply.Answer) != 1 {
		t.Errorf("the answer is %v", reply)
	}
}

// serveNames serves records, and gives its address.
func serveNames(t *testing.T, records ...string) string {
	t.Helper()
	started := make(chan struct{})
	server := &dns.Server{Addr: "127.0.0.1:0", Net: "udp", NotifyStartedFunc: func() { close(started) }}
	server.Handler = dns.HandlerFunc(func(to dns.ResponseWriter, query *dns.Msg) {
		reply := new(dns.Msg).SetReply(query)
		for _, text := range records {
			record, err := dns.NewRR(text)
			if err == nil && record.Header().Name == query.Question[0].Name && record.Header().Rrtype == query.Question[0].Qtype {
				reply.Answer = append(reply.Answer, record)
			}
		}
		_ = to.WriteMsg(reply)
	})
	go server.ListenAndServe()
	t.Cleanup(func() { server.Shutdown() })
	<-started
	return server.PacketConn.LocalAddr().String()
}

func TestARelayEndsWithItsOwner(t *testing.T) {
	w := newWorld(t, nil)
	first := w.brief()
	second := w.brief() // in place of the first one, which is cut off
	must(t, second.with(control.Message{Op: "settings"}, json.RawMessage(`{}`)))
	first.Close()
	must(t, second.do(control.Message{Op: "forget_names"}, nil))
	second.Close()
	if err := <-w.ended; err != nil {
		t.Error(err)
	}
	w.ended <- nil // for who ends the world
}

func TestARelayStaysWithoutAnOwnerAsLongAsAProcessRuns(t *testing.T) {
	w := newWorld(t, nil)
	process := exec.Command("sleep", "1000")
	must(t, process.Start())
	first := w.owner()
	first.stay(process.Process.Pid)
	line := first.add("one")
	first.rules("one", `{}`)
	first.Close()
	second := w.brief()
	var given control.Given
	second.last++
	must(t, second.Send(control.Message{Op: "give", Link: "one", ID: second.last}))
	got := <-second.answers
	defer channel.CloseAll(got.files)
	must(t, json.Unmarshal(got.Content, &given))
	if given.Held || given.Cut || len(got.files) != 3 {
		t.Errorf("it gives %+v with %d sockets", given, len(got.files))
	}
	same, err := net.FileListener(got.files[0])
	must(t, err)
	defer same.Close()
	if same.Addr().String() != line.guests.Addr().String() {
		t.Errorf("the listener is that of %s", same.Addr())
	}
	second.Close()
	must(t, process.Process.Kill())
	_ = process.Wait()
	if err := <-w.ended; err != nil {
		t.Error(err)
	}
	w.ended <- nil // for who ends the world
}
