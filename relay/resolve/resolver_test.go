package resolve

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/miekg/dns"
)

// clock is the time of a test.
type clock struct {
	mu  sync.Mutex
	now time.Time
}

func (c *clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *clock) pass(span time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(span)
}

func resolverOf(servers ...*server) (*Resolver, *clock) {
	time0 := &clock{now: time.Unix(1000, 0)}
	return NewResolver(clientOf(servers...), time0.Now), time0
}

func textsOf(addresses []netip.Addr) []string {
	var texts []string
	for _, each := range addresses {
		texts = append(texts, each.String())
	}
	slices.Sort(texts)
	return texts
}

func TestAddressesAreThoseOfIPv4OrElseOfIPv6(t *testing.T) {
	known := knowing(t, "both.example. 60 IN A 192.0.2.1", "both.example. 60 IN A 192.0.2.2", "both.example. 60 IN AAAA 2001:db8::1",
		"six.example. 60 IN AAAA 2001:db8::6", "carried.example. 60 IN AAAA ::ffff:10.0.0.1")
	resolver, _ := resolverOf(known)
	for name, want := range map[string][]string{
		"both.example": {"192.0.2.1", "192.0.2.2"}, "six.example": {"2001:db8::6"}, "carried.example": {"::ffff:10.0.0.1"},
	} {
		got, err := resolver.Addresses(t.Context(), name)
		if err != nil || !reflect.DeepEqual(textsOf(got), want) {
			t.Errorf("%s: %v, %v", name, got, err)
		}
	}
}

func TestAnErrorSaysWhy(t *testing.T) {
	known := knowing(t, "text.example. 60 IN TXT x")
	for name, c := range map[string]struct {
		server *server
		code   int
		text   string
	}{
		"none.example": {known, dns.RcodeNameError, "none.example cannot be resolved: NXDOMAIN"},
		"text.example": {known, dns.RcodeSuccess, "text.example cannot be resolved: NOERROR"},
		"shut.example": {failing(t, dns.RcodeRefused), dns.RcodeRefused, "shut.example cannot be resolved: REFUSED"},
		"odd.example":  {failing(t, 14), 14, "odd.example cannot be resolved: RCODE14"},
	} {
		resolver, _ := resolverOf(c.server)
		_, err := resolver.Addresses(t.Context(), name)
		if codeOf(t, err) != c.code || err.Error() != c.text {
			t.Errorf("%s: %v", name, err)
		}
	}
	nobody, _ := resolverOf()
	if _, err := nobody.Addresses(t.Context(), "a.example"); codeOf(t, err) != dns.RcodeServerFailure {
		t.Error(err)
	}
	if _, err := nobody.Message(t.Context(), strings.Repeat("x", 64), dns.TypeA); codeOf(t, err) != dns.RcodeServerFailure {
		t.Error(err)
	}
}

func TestAnAddressIsRememberedForAsLongAsTheAnswerSays(t *testing.T) {
	for ttl, kept := range map[string]time.Duration{
		"0": time.Second, "7": 7 * time.Second, "86400": 30 * time.Second, "4294967295": 30 * time.Second,
	} {
		known := knowing(t, "a.example. "+ttl+" IN A 192.0.2.1")
		resolver, now := resolverOf(known)
		for _, wait := range []time.Duration{0, kept - time.Millisecond} {
			now.pass(wait)
			_, err := resolver.Addresses(t.Context(), "a.example")
			must(t, err)
		}
		if datagrams, _ := known.times(); datagrams != 1 {
			t.Errorf("a TTL of %s: it was asked %d times", ttl, datagrams)
		}
		now.pass(time.Millisecond)
		_, err := resolver.Addresses(t.Context(), "a.example")
		must(t, err)
		if datagrams, _ := known.times(); datagrams != 2 {
			t.Errorf("a TTL of %s holds for ever", ttl)
		}
	}
}

func TestTheShortestTTLOfAnAnswerCounts(t *testing.T) {
	known := knowing(t, "a.example. 3 IN CNAME b.example.", "a.example. 20 IN A 192.0.2.1")
	resolver, now := resolverOf(known)
	for range 2 {
		_, err := resolver.Addresses(t.Context(), "a.example")
		must(t, err)
		now.pass(3 * time.Second)
	}
	if datagrams, _ := known.times(); datagrams != 2 {
		t.Errorf("it was asked %d times", datagrams)
	}
}

func TestWhatIsForgottenIsAskedAgain(t *testing.T) {
	known := knowing(t, "a.example. 60 IN A 192.0.2.1")
	resolver, _ := resolverOf(known)
	for range 2 {
		_, err := resolver.Addresses(t.Context(), "a.example")
		must(t, err)
		resolver.Forget()
	}
	if datagrams, _ := known.times(); datagrams != 2 {
		t.Errorf("it was asked %d times", datagrams)
	}
}

// held is a nameserver that answers when it is told to.
func held(t testing.TB, address string) (*server, chan struct{}) {
	release := make(chan struct{})
	stop := t.Context().Done()
	return serve(t, func(asked []byte, _ Network) [][]byte {
		select {
		case <-release:
		case <-stop:
		}
		return [][]byte{replyWith(t, asked, "a.example. 60 IN A "+address)}
	}), release
}

func TestAllWhoWaitForANameShareOneQuestion(t *testing.T) {
	known, release := held(t, "192.0.2.1")
	resolver, _ := resolverOf(known)
	var all sync.WaitGroup
	for range 50 {
		all.Go(func() {
			if got, err := resolver.Addresses(t.Context(), "a.example"); err != nil || len(got) != 1 {
				t.Errorf("%v, %v", got, err)
			}
		})
	}
	until(t, "all who wait", func() bool { return waitingFor(resolver, "a.example") == 50 })
	close(release)
	all.Wait()
	if datagrams, _ := known.times(); datagrams != 1 {
		t.Errorf("it was asked %d times", datagrams)
	}
}

func waitingFor(resolver *Resolver, name string) int {
	resolver.mu.Lock()
	defer resolver.mu.Unlock()
	if asked := resolver.asking[name]; asked != nil {
		return asked.waiting
	}
	return 0
}

func TestWhoGivesUpDoesNotEndTheQuestionForOthersAndTheLastOneDoes(t *testing.T) {
	known, release := held(t, "192.0.2.1")
	resolver, _ := resolverOf(known)
	before := runtime.NumGoroutine()
	ctx, cancel := context.WithCancel(t.Context())
	var all sync.WaitGroup
	impatient := func() {
		if _, err := resolver.Addresses(ctx, "a.example"); !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	}
	all.Go(impatient)
	patient, got := context.WithCancel(t.Context())
	defer got()
	all.Go(func() { resolver.Addresses(patient, "a.example") })
	until(t, "both", func() bool { return waitingFor(resolver, "a.example") == 2 })
	cancel()
	until(t, "the end of one", func() bool { return waitingFor(resolver, "a.example") == 1 })
	got()
	all.Wait()
	until(t, "the end of the question", func() bool { return runtime.NumGoroutine() <= before })
	close(release)
	if found, err := resolver.Addresses(t.Context(), "a.example"); err != nil || len(found) != 1 {
		t.Errorf("%v, %v", found, err)
	}
}

func TestAnAnswerToWhatWasAskedBeforeItWasForgottenIsNotRemembered(t *testing.T) {
	known, release := held(t, "192.0.2.1")
	resolver, _ := resolverOf(known)
	done := make(chan error)
	go func() {
		_, err := resolver.Addresses(t.Context(), "a.example")
		done <- err
	}()
	until(t, "the question", func() bool { datagrams, _ := known.times(); return datagrams == 1 })
	resolver.Forget()
	close(release)
	must(t, <-done)
	_, err := resolver.Addresses(t.Context(), "a.example")
	must(t, err)
	if datagrams, _ := known.times(); datagrams != 2 {
		t.Errorf("it was asked %d times", datagrams)
	}
}

func TestOnlySoManyNamesAreRemembered(t *testing.T) {
	resolver, now := resolverOf()
	for i := range cachedMost + 100 {
		resolver.remember(fmt.Sprint(i), answer{until: now.Now().Add(time.Second)})
	}
	if got := len(resolver.cached); got != cachedMost {
		t.Errorf("%d are remembered", got)
	}
}

func TestATruncatedAnswerIsAskedForAgainByStream(t *testing.T) {
	var records []string
	for i := range 200 {
		records = append(records, fmt.Sprintf("a.example. 60 IN A 192.0.2.%d", i))
	}
	known := serve(t, func(asked []byte, by Network) [][]byte {
		reply := replyWith(t, asked, records...)
		if by == Datagram {
			reply = coded(asked, 0)
			reply[2] |= truncated >> 8
		}
		return [][]byte{reply}
	})
	resolver, _ := resolverOf(known)
	message, err := resolver.Message(t.Context(), "a.example", dns.TypeA)
	if err != nil || len(message.Answer) != 200 {
		t.Errorf("%v, %v", message, err)
	}
	if got, err := resolver.Addresses(t.Context(), "a.example"); err != nil || len(got) != addressesMost {
		t.Errorf("%d addresses, %v", len(got), err)
	}
}

func TestAnAnswerThatIsNotValidIsAFailure(t *testing.T) {
	for what, spoil := range map[string]func([]byte) []byte{
		"cut":         func(reply []byte) []byte { return reply[:len(reply)-2] },
		"whole count": func(reply []byte) []byte { reply[7] = 9; return reply },
		"truncated":   func(reply []byte) []byte { reply[2] |= truncated >> 8; return reply },
	} {
		known := serve(t, func(asked []byte, _ Network) [][]byte {
			return [][]byte{spoil(replyWith(t, asked, "a.example. 60 IN A 192.0.2.1"))}
		})
		resolver, _ := resolverOf(known)
		if _, err := resolver.Addresses(t.Context(), "a.example"); codeOf(t, err) != dns.RcodeServerFailure {
			t.Errorf("%s: %v", what, err)
		}
	}
}

func TestARecordWithoutItsDataIsNoAddress(t *testing.T) {
	known := serve(t, func(asked []byte, _ Network) [][]byte {
		reply := coded(asked, 0)
		reply = reply[:headerBytes+len(Question(asked))]
		reply[7], reply[11] = 1, 0
		kind := Question(asked)[len(Question(asked))-4:][:2]
		return [][]byte{slices.Concat(reply, []byte{0xc0, headerBytes}, kind, []byte{0, 1, 0, 0, 0, 60, 0, 0})}
	})
	resolver, _ := resolverOf(known)
	if _, err := resolver.Addresses(t.Context(), "a.example"); codeOf(t, err) != dns.RcodeSuccess {
		t.Error(err)
	}
}

func TestAQuestionIsMadeHereAndHasNothingThatAGuestAdded(t *testing.T) {
	known := knowing(t, "a.example. 60 IN TXT x")
	resolver, _ := resolverOf(known)
	_, err := resolver.Message(t.Context(), "a.example", dns.TypeTXT)
	must(t, err)
	asked := new(dns.Msg)
	must(t, asked.Unpack(known.questions()[0]))
	options := asked.IsEdns0()
	if !asked.RecursionDesired || len(asked.Extra) != 1 || options == nil ||
		options.UDPSize() != PayloadMost || len(options.Option) != 0 {
		t.Errorf("%v", asked)
	}
	if !bytes.Contains(known.questions()[0], []byte("\x01a\x07example\x00")) {
		t.Errorf("%q", known.questions()[0])
	}
}

func TestWhoDoesNotWaitIsToldSo(t *testing.T) {
	resolver, _ := resolverOf(silent(t))
	_, err := resolver.Message(within(t, 20*time.Millisecond), "a.example", dns.TypeA)
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Error(err)
	}
}
