package nameserver

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/miekg/dns"

	"atoll/policy"
	"atoll/relay/names"
)

const good = "good.example.com"

func TestAnAllowedNameGetsAnAddressThatStandsForIt(t *testing.T) {
	up := serveNames(t, good+". 60 IN A 203.0.113.1")
	judge := allowing(good, "GOOD.example.COM")
	by := namedBy(t, judge, up.nameservers)
	reply := answered(t, by, question(good+".", dns.TypeA))
	want := good + ".\t60\tIN\tA\t198.18.0.1"
	if reply.Rcode != dns.RcodeSuccess || len(reply.Answer) != 1 || reply.Answer[0].String() != want {
		t.Errorf("%v", reply)
	}
	if name, _ := by.names.NameAt(netip.MustParseAddr("198.18.0.1")); name != good {
		t.Errorf("it leads to %q", name)
	}
	again := answered(t, by, question("GOOD.example.COM.", dns.TypeA))
	if got := again.Answer[0].String(); got != "GOOD.example.COM.\t60\tIN\tA\t198.18.0.1" {
		t.Errorf("in other letters it is %s", got)
	}
	if noted, _ := judge.told(); len(noted) != 0 {
		t.Errorf("%v was noted", noted)
	}
}

func TestANameThatNoRuleAllowsDoesNotExistAndIsAskedNowhere(t *testing.T) {
	up := serveNames(t, "evil.example. 60 IN A 203.0.113.1")
	judge := allowing(good)
	by := namedBy(t, judge, up.nameservers)
	for _, name := range []string{"evil.example.", "x.good.example.com.", "example.com.", "a_b\\.c.example.com.", "\\255.example."} {
		for _, kind := range []uint16{dns.TypeA, dns.TypeAAAA, dns.TypeTXT, dns.TypeMX, dns.TypeANY, dns.TypeHTTPS, 65280} {
			reply := answered(t, by, question(name, kind))
			if reply.Rcode != dns.RcodeNameError || len(reply.Answer)+len(reply.Ns) != 0 {
				t.Errorf("%s: %v", name, reply)
			}
			if want := "15 no rule allows " + strings.TrimSuffix(name, "."); reasonIn(reply) != want {
				t.Errorf("the reason is %q, not %q", reasonIn(reply), want)
			}
		}
	}
	noted, unplugged := judge.told()
	if len(noted) != 35 || len(unplugged) != 0 || up.times() != 0 {
		t.Errorf("%d refusals were noted, %v, and %d questions asked", len(noted), unplugged, up.times())
	}
	if want := (note{"deny", "no rule allows evil.example", "evil.example", "TXT"}); noted[2] != want {
		t.Errorf("%v", noted[2])
	}
	if noted[6].kind != "TYPE65280" {
		t.Errorf("%v", noted[6])
	}
}

func TestWhatIsNoNameOfAHostDoesNotExistWhateverTheRulesSay(t *testing.T) {
	judge := allowing("1.2.3.4", ".", `a\ b.example`)
	by := namedBy(t, judge, nobody)
	for _, name := range []string{"1.2.3.4.", ".", `a\ b.example.`} {
		if reply := answered(t, by, question(name, dns.TypeA)); reply.Rcode != dns.RcodeNameError {
			t.Errorf("%v", reply)
		}
	}
}

func TestARefusalSaysWhyToThoseWhoCanHearItAndIsShort(t *testing.T) {
	by := namedBy(t, allowing(good), nobody)
	longest := strings.Repeat("x", 63)
	longest = longest + "." + longest + "." + longest + "." + strings.Repeat("y", 59) + "."
	reply := answered(t, by, question(longest, dns.TypeA))
	why := reasonIn(reply)
	if !strings.HasPrefix(why, "15 no rule allows xxx") || len(why) != len("15 ")+reasonMost {
		t.Errorf("%q", why)
	}
	if got := len(packed(t, reply)); got > dns.MinMsgSize {
		t.Errorf("it has %d bytes", got)
	}
	plain := new(dns.Msg).SetQuestion("evil.example.", dns.TypeA)
	if reply := answered(t, by, plain); reply.Rcode != dns.RcodeNameError || reply.IsEdns0() != nil {
		t.Errorf("%v", reply)
	}
	judge := allowing()
	judge.verdicts["odd"] = policy.Admission{Action: policy.Deny, Reason: strings.Repeat("x", reasonMost-1) + "ü"}
	reply = answered(t, namedBy(t, judge, nobody), question("odd.", dns.TypeA))
	if got := reasonIn(reply); got != "15 "+strings.Repeat("x", reasonMost-1) {
		t.Errorf("%q", got)
	}
}

func TestAnAllowedNameHasNoIPv6AddressAndNoRecordThatLeadsAround(t *testing.T) {
	up := serveNames(t, good+". 60 IN AAAA 2001:db8::1", good+". 60 IN HTTPS 1 . alpn=h2")
	by := namedBy(t, allowing(good), up.nameservers)
	for _, kind := range []uint16{dns.TypeAAAA, dns.TypeHTTPS, dns.TypeSVCB, dns.TypeDS, dns.TypeNAPTR, 65280} {
		if reply := answered(t, by, question(good+".", kind)); reply.Rcode != dns.RcodeSuccess || len(reply.Answer) != 0 {
			t.Errorf("%v", reply)
		}
	}
	if reply := answered(t, by, question(good+".", dns.TypeANY)); reply.Rcode != dns.RcodeNotImplemented {
		t.Errorf("%v", reply)
	}
	if up.times() != 0 {
		t.Errorf("the nameserver was asked %d times", up.times())
	}
}

func TestWhatAGuestMayLearnBesideAnAddressIsTheNameserversAnswer(t *testing.T) {
	records := []string{
		good + ".\t60\tIN\tCAA\t0 issue \"ca.example\"", good + ".\t60\tIN\tCNAME\tother.example.",
		good + ".\t60\tIN\tMX\t1 mail.example.",
		good + ".\t60\tIN\tNS\tns.example.", good + ".\t60\tIN\tSOA\tns.example. root.example. 1 2 3 4 5",
		good + ".\t60\tIN\tSRV\t1 2 3 srv.example.", good + ".\t60\tIN\tTXT\t\"text\"",
	}
	up := serveNames(t, records...)
	by := namedBy(t, allowing(good, "none.example.com"), up.nameservers)
	for i, kind := range []uint16{
		dns.TypeCAA, dns.TypeCNAME, dns.TypeMX, dns.TypeNS, dns.TypeSOA, dns.TypeSRV, dns.TypeTXT,
	} {
		reply := answered(t, by, question(good+".", kind))
		if len(reply.Answer) != 1 || reply.Answer[0].String() != records[i] {
			t.Errorf("%v", reply)
		}
	}
	reply := answered(t, by, question("none.example.com.", dns.TypeTXT))
	if reply.Rcode != dns.RcodeNameError || reasonIn(reply) != "" {
		t.Errorf("%v", reply)
	}
}

func TestACodeOfTheNameserverIsPassedOnIfAGuestCanReadIt(t *testing.T) {
	for code, want := range map[int]int{
		dns.RcodeRefused: dns.RcodeRefused, dns.RcodeServerFailure: dns.RcodeServerFailure, dns.RcodeBadVers: dns.RcodeServerFailure,
	} {
		up := serveNames(t).fail(code)
		by := namedBy(t, allowing(good), up.nameservers)
		for _, kind := range []uint16{dns.TypeA, dns.TypeTXT} {
			if reply := answered(t, by, question(good+".", kind)); reply.Rcode != want || len(reply.Answer) != 0 {
				t.Errorf("%d: %v", code, reply)
			}
			plain := new(dns.Msg).SetQuestion(good+".", kind)
			if reply := answered(t, by, plain); reply.Rcode != want {
				t.Errorf("%d: %v", code, reply)
			}
		}
	}
}

func TestAnAnswerThatIsTooLongIsLeftOut(t *testing.T) {
	var records []string
	for i := range 30 {
		records = append(records, fmt.Sprintf("%s. 60 IN TXT \"%d %s\"", good, i, strings.Repeat("x", 60)))
	}
	judge := allowing(good)
	by := namedBy(t, judge, serveNames(t, records...).nameservers)
	reply := answered(t, by, question(good+".", dns.TypeTXT))
	if reply.Rcode != dns.RcodeSuccess || len(reply.Answer) != 0 || reasonIn(reply) != "15 its answer is over 1232 bytes" {
		t.Errorf("%v", reply)
	}
	if noted, _ := judge.told(); len(noted) != 1 || noted[0].name != good || noted[0].kind != "TXT" {
		t.Errorf("%v", noted)
	}
	by = namedBy(t, judge, serveNames(t, records[:14]...).nameservers)
	if reply := answered(t, by, question(good+".", dns.TypeTXT)); len(reply.Answer) != 14 {
		t.Errorf("%v", reply)
	}
}

func TestWhoAsksForANameIsToldThatItLeadsInsideAndNotToWhichAddress(t *testing.T) {
	inside, public := netip.MustParseAddr("10.11.12.13"), netip.MustParseAddr("203.0.113.9")
	judge := allowing("wiki.example", "www.example", "both.example")
	judge.closed[inside] = "private"
	judge.unopened = []netip.Addr{public}
	up := serveNames(t, "wiki.example. 60 IN A 10.11.12.13", "www.example. 60 IN A 203.0.113.9",
		"both.example. 60 IN A 10.11.12.13", "both.example. 60 IN A 203.0.113.10")
	by := namedBy(t, judge, up.nameservers)
	for name, why := range map[string]string{
		"wiki.example.": "15 it leads to an address that is private and that no rule opens",
		"www.example.":  "15 it leads to an address that no rule opens",
	} {
		reply := answered(t, by, question(name, dns.TypeA))
		if reply.Rcode != dns.RcodeNameError || len(reply.Answer) != 0 || reasonIn(reply) != why {
			t.Errorf("%v", reply)
		}
	}
	if reply := answered(t, by, question("both.example.", dns.TypeA)); len(reply.Answer) != 1 {
		t.Errorf("one of its addresses is open: %v", reply)
	}
	if noted, _ := judge.told(); len(noted) != 2 || len(by.names.All()) != 1 {
		t.Errorf("%v, %v", noted, by.names.All())
	}
}

func TestANameThatCannotBeResolvedHasTheNameserversCode(t *testing.T) {
	up := serveNames(t, "text.example. 60 IN TXT x")
	by := namedBy(t, allowing("none.example", "text.example"), up.nameservers)
	for name, code := range map[string]int{"none.example.": dns.RcodeNameError, "text.example.": dns.RcodeSuccess} {
		if reply := answered(t, by, question(name, dns.TypeA)); reply.Rcode != code || len(reply.Answer) != 0 {
			t.Errorf("%v", reply)
		}
	}
	by = namedBy(t, allowing(good), nobody)
	if reply := answered(t, by, question(good+".", dns.TypeA)); reply.Rcode != dns.RcodeServerFailure {
		t.Errorf("%v", reply)
	}
	if len(by.names.All()) != 0 {
		t.Error("it got an address")
	}
}

func TestNamesThatNobodyOutsideHasAndThoseOfAProxyAreAskedOfNobody(t *testing.T) {
	for _, name := range []string{"host.atoll.internal", "db.sandbox.atoll.internal", "behind.example"} {
		up, judge := serveNames(t), allowing(name)
		judge.proxied = name == "behind.example"
		by := namedBy(t, judge, up.nameservers)
		if reply := answered(t, by, question(name+".", dns.TypeA)); len(reply.Answer) != 1 {
			t.Errorf("%v", reply)
		}
		for _, kind := range []uint16{dns.TypeTXT, dns.TypeMX} {
			if reply := answered(t, by, question(name+".", kind)); reply.Rcode != dns.RcodeSuccess || len(reply.Answer) != 0 {
				t.Errorf("%v", reply)
			}
		}
		if up.times() != 0 {
			t.Errorf("%s was asked for", name)
		}
	}
}

func TestAVerdictThatUnpluggedDoesSoAndIsAskedOfNobody(t *testing.T) {
	up, judge := serveNames(t), allowing()
	judge.verdicts["trap.example"] = policy.Admission{Action: policy.Unplug, Reason: "rule 1 unplugs at trap.example"}
	by := namedBy(t, judge, up.nameservers)
	reply := answered(t, by, question("trap.example.", dns.TypeTXT))
	noted, unplugged := judge.told()
	if reply.Rcode != dns.RcodeNameError || len(noted) != 1 || len(unplugged) != 1 || up.times() != 0 {
		t.Errorf("%v, %v, %v", reply, noted, unplugged)
	}
}

func TestAnObservedNameIsAllowed(t *testing.T) {
	judge := allowing()
	judge.verdicts[good] = policy.Admission{Action: policy.Allow, Observed: true, Reason: "no rule allows it"}
	by := namedBy(t, judge, serveNames(t, good+". 60 IN A 203.0.113.1").nameservers)
	if reply := answered(t, by, question(good+".", dns.TypeA)); len(reply.Answer) != 1 {
		t.Errorf("%v", reply)
	}
}

func TestAnAddressThatStandsForANameLeadsBackToIt(t *testing.T) {
	by := namedBy(t, allowing(good), serveNames(t, good+". 60 IN A 203.0.113.1").nameservers)
	answered(t, by, question(good+".", dns.TypeA))
	reply := answered(t, by, question("1.0.18.198.In-Addr.ARPA.", dns.TypePTR))
	want := "1.0.18.198.In-Addr.ARPA.\t60\tIN\tPTR\tgood.example.com."
	if len(reply.Answer) != 1 || reply.Answer[0].String() != want {
		t.Errorf("%v", reply)
	}
	for _, name := range []string{
		"2.0.18.198.in-addr.arpa.", "01.0.18.198.in-addr.arpa.", "8.8.8.8.in-addr.arpa.", "0.18.198.in-addr.arpa.", "in-addr.arpa.",
		".", "1.1.0.18.198.in-addr.arpa.", "1.0.18.198.in-addr.example.", good + ".", "::1.0.18.198.in-addr.arpa.",
		"1.0.18\\.198.x.in-addr.arpa.",
	} {
		if reply := answered(t, by, question(name, dns.TypePTR)); reply.Rcode != dns.RcodeNameError || len(reply.Answer) != 0 {
			t.Errorf("%v", reply)
		}
	}
}

func TestOtherClassesAreRefused(t *testing.T) {
	by := namedBy(t, allowing(good), nobody)
	for _, class := range []uint16{dns.ClassCHAOS, dns.ClassANY} {
		query := question(good+".", dns.TypeTXT)
		query.Question[0].Qclass = class
		if reply := answered(t, by, query); reply.Rcode != dns.RcodeRefused {
			t.Errorf("%v", reply)
		}
	}
}

func TestWhatIsNotAQuestionHasNoAnswer(t *testing.T) {
	by := namedBy(t, allowing(good), nobody)
	update, two := question(good+".", dns.TypeA), question(good+".", dns.TypeA)
	update.Opcode = dns.OpcodeUpdate
	two.Question = append(two.Question, two.Question[0])
	cut := packed(t, question(good+".", dns.TypeA))
	for _, wire := range [][]byte{nil, packed(t, update), packed(t, two), cut[:len(cut)-2], cut[:12], cut[:5]} {
		if answer := by.answer(t.Context(), wire); answer != nil {
			t.Errorf("%q: %q", wire, answer)
		}
	}
}

func TestWithoutAFreeAddressTheServerFails(t *testing.T) {
	by := namedBy(t, allowing("host.atoll.internal"), nobody)
	for i := range names.MostNames {
		by.names.AddressOf(fmt.Sprint("n", i))
	}
	if reply := answered(t, by, question("host.atoll.internal.", dns.TypeA)); reply.Rcode != dns.RcodeServerFailure {
		t.Errorf("%v", reply)
	}
}
