package control

import (
	"encoding/json"
	"errors"
	"net/netip"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"atoll/channel"
	"atoll/policy"
	"atoll/relay/guest"
)

func pair(t testing.TB) (one, other *channel.Channel) {
	t.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	var ends [2]*channel.Channel
	for i, fd := range fds {
		if ends[i], err = channel.Open(os.NewFile(uintptr(fd), "channel")); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { ends[i].Close() })
	}
	return ends[0], ends[1]
}

func TestAnAnswerComesInItsMessageOrBesideIt(t *testing.T) {
	relay, supervisor := pair(t)
	long := strings.Repeat("n", contentMost)
	for _, content := range []string{"short", long} {
		if err := Reply(relay, 7, content, nil); err != nil {
			t.Fatal(err)
		}
		var answer Answer
		files, err := supervisor.Receive(&answer)
		if err != nil || answer.Op != "answer" || answer.ID != 7 || answer.Error != "" {
			t.Fatalf("%+v, %v", answer, err)
		}
		var got string
		if len(files) == 1 {
			err = channel.Content(files[0], &got)
		} else {
			err = json.Unmarshal(answer.Content, &got)
		}
		if err != nil || got != content || (len(files) == 1) != (content == long) {
			t.Errorf("%d bytes with %d descriptors, %v", len(got), len(files), err)
		}
	}
	for _, failure := range []error{nil, errors.New(strings.Repeat("é", errorMost))} {
		if err := Reply(relay, 8, nil, failure); err != nil {
			t.Fatal(err)
		}
		var answer Answer
		if _, err := supervisor.Receive(&answer); err != nil || answer.Content != nil || (answer.Error == "") != (failure == nil) {
			t.Errorf("%+v, %v", answer, err)
		}
		if len(answer.Error) > errorMost || strings.ContainsRune(answer.Error, '\uFFFD') {
			t.Errorf("the error is %d bytes: %.20q", len(answer.Error), answer.Error)
		}
	}
}

func TestWordsThatNobodySendsEndTheChannel(t *testing.T) {
	for _, message := range []Message{
		{Op: strings.Repeat("x", wordMost+1)}, {Op: "hold", Link: "a\nb"}, {Op: "ask", What: "\x00"},
		{Op: "rules", Sandbox: "\x1b[0m"},
	} {
		relay, supervisor := pair(t)
		file, err := channel.Sealed("content")
		if err != nil {
			t.Fatal(err)
		}
		defer file.Close()
		if err := supervisor.Send(message, file); err != nil {
			t.Fatal(err)
		}
		if got, files, err := Receive(relay); err == nil || files != nil {
			t.Errorf("%+v is taken", got)
		}
	}
}

func TestNameserversComeAsATextOrAList(t *testing.T) {
	for text, want := range map[string]string{
		`"nameserver 192.0.2.1\nnameserver ::1\n"`: "192.0.2.1:53 [::1]:53",
		`""`:                         "127.0.0.1:53",
		`["192.0.2.1","[::1]:5353"]`: "192.0.2.1:53 [::1]:5353",
		`["::1","192.0.2.1:5353"]`:   "[::1]:53 192.0.2.1:5353",
		`["dns.example.com"]`:        "no nameserver",
		`7`:                          "neither",
	} {
		var got Nameservers
		said := ""
		if err := json.Unmarshal([]byte(text), &got); err != nil {
			said = err.Error()
		}
		for i, each := range got {
			if i > 0 {
				said += " "
			}
			said += each.String()
		}
		if !strings.Contains(said, want) {
			t.Errorf("%s: %s", text, said)
		}
	}
}

func TestSettingsHaveAPatience(t *testing.T) {
	for ms, isOne := range map[int64]bool{0: true, 250: true, -1: false, 1 << 60: false} {
		if _, err := (&Settings{PatienceMS: ms}).Patience(); (err == nil) != isOne {
			t.Errorf("%d ms: %v", ms, err)
		}
	}
}

func TestRulesBecomeBounds(t *testing.T) {
	for text, want := range map[string]struct{ action, fault string }{
		`{}`:                       {"allow", ""},
		`{"own":{"rules":[]}}`:     {"deny", ""},
		`{"ceiling":{"rules":[]}}`: {"deny", ""},
		`{"ceiling":{"rules":[{"action":"allow"}]}}`:                  {"allow", ""},
		`{"own":{"rules":[{"action":"allow"}],"proxy":{"hosts":[]}}}`: {"", "do not go together"},
		`{"proxy":{"url":"http://192.0.2.1:80"}}`:                     {"", "do not go together"},
		`{"own":{"rules":[{"actions":"allow"}]}}`:                     {"", "unknown field"},
		`{"ceiling":{"rules":[],"observe":true}}`:                     {"", "only observes"},
		`{"ceiling":{"rules":[7]}}`:                                   {"", "the ceiling: "},
		`{"own":{"rules":[{"action":"ask"}]}}`:                        {"inspect", ""},
		`{"ceiling":{"rules":[{"action":"ask"}]}}`:                    {"", "a rule asks"},
	} {
		var rules Rules
		if err := json.Unmarshal([]byte(text), &rules); err != nil {
			t.Fatal(err)
		}
		bounds, err := rules.Bounds()
		if want.fault != "" {
			if err == nil || !strings.Contains(err.Error(), want.fault) {
				t.Errorf("%s: %v", text, err)
			}
			continue
		}
		if err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		way := bounds.Decide(policy.Asked{Port: 443, Addresses: []policy.Known{{Address: "203.0.113.1"}}})
		if way.Action != want.action {
			t.Errorf("%s: %+v", text, way)
		}
	}
}

func TestFlowsComeBackAsTheyWere(t *testing.T) {
	flows := []guest.Flow{{GuestPort: 40000, To: netip.MustParseAddrPort("203.0.113.1:443")}}
	text, err := json.Marshal(FlowsOf(flows))
	if err != nil || string(text) != `[{"guest_port":40000,"address":"203.0.113.1","port":443}]` {
		t.Fatalf("%s, %v", text, err)
	}
	var read []Flow
	if err := json.Unmarshal(text, &read); err != nil || Known(read)[0] != flows[0] {
		t.Errorf("%v, %v", read, err)
	}
}

func FuzzReceive(f *testing.F) {
	for _, text := range []string{
		`{"op":"hello","id":1,"protocol":2}`, `{"op":"rules","link":"0a1b","sandbox":"s","version":3}`,
		`{"op":"ask","id":9,"link":"l","what":"kept"}`, `{"op":"reached","id":-1,"error":"x"}`, `{"op":"\ud800"}`, `[]`, "\xff",
	} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		if len(data) == 0 || len(data) > 1<<15 {
			return
		}
		fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer unix.Close(fds[1])
		relay, err := channel.Open(os.NewFile(uintptr(fds[0]), "channel"))
		if err != nil {
			t.Fatal(err)
		}
		defer relay.Close()
		if _, err := unix.Write(fds[1], data); err != nil {
			t.Fatal(err)
		}
		if got, _, err := Receive(relay); err == nil && len(got.Link) > wordMost {
			t.Errorf("%q was taken", data)
		}
	})
}

func FuzzRules(f *testing.F) {
	for _, text := range []string{
		`{"own":{"rules":[{"action":"allow","hosts":["*.x"]}],"observe":true,"passthrough":["a"],"proxy":{"hosts":["b"]}},
			"proxy":{"url":"socks5://u:p@h.x:1080","addresses":["10.0.0.1/32"]},"ceiling":{"rules":[]},"canaries":["c"]}`,
		`{"own":null}`, `{"own":{"rules":[null]}}`, `{"ceiling":{"proxy":{}}}`, `{"canaries":[null]}`,
	} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		var rules Rules
		if json.Unmarshal(data, &rules) != nil {
			return
		}
		policy.NewCanaries(rules.Canaries).InName("a.example.com")
		bounds, err := rules.Bounds()
		if err == nil && rules.Own != nil && len(rules.Own.Rules) == 0 && !rules.Own.Observe &&
			bounds.Name("a.example.com").Action == policy.Allow {
			t.Errorf("%q allows a name by no rule", data)
		}
	})
}
