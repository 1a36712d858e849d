package resolve

import (
	"bytes"
	"context"
	"errors"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/miekg/dns"
)

func TestAnAnswerPassesAsItIsButForItsID(t *testing.T) {
	for _, by := range []Network{Datagram, Stream} {
		known := serve(t, func(asked []byte, _ Network) [][]byte { return [][]byte{append(coded(asked, 3), "more"...)} })
		query := append(queryFor(t, "eXample.org.", dns.TypeTXT), "behind it"...)
		reply, err := clientOf(known).Exchange(t.Context(), query, by)
		must(t, err)
		if want := append(coded(query, 3), "more"...); !bytes.Equal(reply, want) {
			t.Errorf("%s: %q, not %q", by, reply, want)
		}
		asked := known.questions()
		if len(asked) != 1 || !bytes.Equal(asked[0][2:], query[2:]) {
			t.Errorf("%s: %q was asked", by, asked)
		}
	}
}

func TestEachQuestionHasAnIDAndASocketThatNobodyChooses(t *testing.T) {
	known := failing(t, 0)
	client, query := clientOf(known), queryFor(t, "example.org.", dns.TypeA)
	ids := map[string]bool{}
	for range 20 {
		_, err := client.Exchange(t.Context(), query, Datagram)
		must(t, err)
	}
	for _, asked := range known.questions() {
		ids[string(asked[:2])] = true
	}
	known.mu.Lock()
	defer known.mu.Unlock()
	if len(ids) < 15 || len(known.ports) < 15 {
		t.Errorf("%d ids and %d ports", len(ids), len(known.ports))
	}
}

func TestOnlyAnAnswerWithTheIDAndTheQuestionCounts(t *testing.T) {
	lying := serve(t, func(asked []byte, _ Network) [][]byte {
		right := coded(asked, 0)
		otherID, otherName, otherKind := bytes.Clone(right), bytes.ReplaceAll(right, []byte("org"), []byte("net")), bytes.Clone(right)
		otherID[0] ^= 1
		otherKind[len(otherKind)-3] = 28
		empty := append(bytes.Clone(right[:4]), make([]byte, 8)...)
		return [][]byte{nil, []byte("x"), otherID, otherName, otherKind, asked, empty, right}
	})
	query := queryFor(t, "example.org.", dns.TypeA)
	reply, err := clientOf(lying).Exchange(t.Context(), query, Datagram)
	must(t, err)
	if !bytes.Equal(reply, coded(query, 0)) {
		t.Errorf("%q", reply)
	}
	if _, err := clientOf(lying).Exchange(t.Context(), query, Stream); err == nil {
		t.Error("an answer without a header counts")
	}
}

func TestAnAnswerToAnotherQuestionOnAStreamDoesNotCount(t *testing.T) {
	lying := serve(t, func(asked []byte, _ Network) [][]byte {
		return [][]byte{bytes.ReplaceAll(coded(asked, 0), []byte("org"), []byte("net"))}
	})
	_, err := clientOf(lying).Exchange(t.Context(), queryFor(t, "example.org.", dns.TypeA), Stream)
	if err == nil || !strings.Contains(err.Error(), "a different question") {
		t.Error(err)
	}
	if _, streams := lying.times(); streams != rounds {
		t.Errorf("it was asked %d times", streams)
	}
}

func TestTheNextNameserverIsAskedWhenOneCannotTell(t *testing.T) {
	for _, by := range []Network{Datagram, Stream} {
		query := queryFor(t, "example.org.", dns.TypeA)
		for _, code := range []int{dns.RcodeServerFailure, dns.RcodeNotImplemented, dns.RcodeRefused} {
			unwilling, willing := failing(t, code), failing(t, dns.RcodeNameError)
			servers := []netip.AddrPort{closedPort(t), unwilling.address, willing.address}
			client := &Client{Nameservers: func() []netip.AddrPort { return servers }}
			reply, err := client.Exchange(t.Context(), query, by)
			must(t, err)
			if !bytes.Equal(reply, coded(query, dns.RcodeNameError)) {
				t.Errorf("%q", reply)
			}
			reply, err = clientOf(unwilling).Exchange(t.Context(), query, by)
			if err != nil || !bytes.Equal(reply, coded(query, code)) {
				t.Errorf("if no other one answers: %q, %v", reply, err)
			}
		}
	}
}

func TestNameserversAreAskedTwice(t *testing.T) {
	times := 0
	known := serve(t, func(asked []byte, _ Network) [][]byte {
		if times++; times == 1 {
			return [][]byte{coded(asked, dns.RcodeServerFailure)}
		}
		return [][]byte{coded(asked, 0)}
	})
	reply, err := clientOf(known).Exchange(t.Context(), queryFor(t, "example.org.", dns.TypeA), Datagram)
	if err != nil || isUnwilling(reply) {
		t.Errorf("%q, %v", reply, err)
	}
}

func TestANameserverThatIsSilentIsGivenUpAfterAWhile(t *testing.T) {
	t.Parallel()
	mute, known := silent(t), failing(t, 0)
	began := time.Now()
	_, err := clientOf(mute, known).Exchange(t.Context(), queryFor(t, "example.org.", dns.TypeA), Datagram)
	must(t, err)
	if took := time.Since(began); took < serverTimeout || took > timeout {
		t.Errorf("it took %s", took)
	}
}

func TestWithoutAnAnswerTheQuestionEndsAfterTenSeconds(t *testing.T) {
	t.Parallel()
	mute := silent(t)
	began := time.Now()
	_, err := clientOf(mute, mute, mute).Exchange(t.Context(), queryFor(t, "example.org.", dns.TypeA), Datagram)
	if err == nil {
		t.Error("it has an answer")
	}
	if took := time.Since(began); took < timeout || took > timeout+5*time.Second {
		t.Errorf("it took %s", took)
	}
	if datagrams, _ := mute.times(); datagrams != 4 {
		t.Errorf("it was asked %d times", datagrams)
	}
}

func TestAQuestionEndsWithItsContext(t *testing.T) {
	for _, by := range []Network{Datagram, Stream} {
		listener, err := net.Listen("tcp", "127.0.0.1:0") // it accepts, and says nothing
		must(t, err)
		defer listener.Close()
		servers := []netip.AddrPort{listener.Addr().(*net.TCPAddr).AddrPort()}
		if by == Datagram {
			servers[0] = silent(t).address
		}
		client := &Client{Nameservers: func() []netip.AddrPort { return servers }}
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(50*time.Millisecond, cancel)
		began := time.Now()
		if _, err := client.Exchange(ctx, queryFor(t, "example.org.", dns.TypeA), by); err == nil {
			t.Error("it has an answer")
		}
		if took := time.Since(began); took > 2*time.Second {
			t.Errorf("%s: it took %s", by, took)
		}
	}
}

func TestWithoutNameserversThereIsNoAnswer(t *testing.T) {
	if _, err := clientOf().Exchange(t.Context(), queryFor(t, "example.org.", dns.TypeA), Datagram); !errors.Is(err, errNobody) {
		t.Error(err)
	}
}

func TestWhatIsNoQuestionIsNotAsked(t *testing.T) {
	known := failing(t, 0)
	for _, message := range [][]byte{nil, make([]byte, 11), make([]byte, 12), append(make([]byte, 12), 0xc0, 12, 0, 1, 0, 1)} {
		if _, err := clientOf(known).Exchange(t.Context(), message, Datagram); err == nil {
			t.Errorf("%q was asked", message)
		}
	}
	if datagrams, _ := known.times(); datagrams != 0 {
		t.Error("the nameserver was asked")
	}
}

func TestALongAnswerComesWhole(t *testing.T) {
	filler := bytes.Repeat([]byte("x"), 40_000)
	known := serve(t, func(asked []byte, _ Network) [][]byte { return [][]byte{append(coded(asked, 0), filler...)} })
	for _, by := range []Network{Datagram, Stream} {
		reply, err := clientOf(known).Exchange(t.Context(), queryFor(t, "example.org.", dns.TypeA), by)
		if err != nil || !bytes.HasSuffix(reply, filler) {
			t.Errorf("%s: %d bytes, %v", by, len(reply), err)
		}
	}
}
