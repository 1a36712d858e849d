package nameserver

import (
	"bytes"
	"net/netip"
	"sync/atomic"
	"testing"

	"github.com/miekg/dns"

	"atoll/relay/resolve"
)

func seed(f *testing.F) {
	for _, name := range []string{
		good + ".", "GOOD.example.com.", "evil.example.", "1.0.18.198.in-addr.arpa.", ".", "\\000\\255\\.a.",
	} {
		for _, kind := range []uint16{dns.TypeA, dns.TypeTXT, dns.TypePTR, dns.TypeANY, dns.TypeHTTPS, 0, 65535} {
			f.Add(packed(f, question(name, kind)))
		}
	}
	plain := packed(f, new(dns.Msg).SetQuestion(good+".", dns.TypeA))
	for _, message := range [][]byte{nil, make([]byte, 12), plain[:len(plain)-1], append(bytes.Clone(plain), "more"...)} {
		f.Add(message)
	}
	for _, flag := range []byte{0x80, 0x28, 0x78, 0x02} {
		other := bytes.Clone(plain)
		other[2] ^= flag
		f.Add(other)
	}
}

// Whatever a guest sends, a refusal is a response to it that is no longer than it, or there is none.
func FuzzRefusal(f *testing.F) {
	seed(f)
	f.Fuzz(func(t *testing.T, data []byte) {
		for _, code := range []uint16{dns.RcodeFormatError, dns.RcodeServerFailure} {
			refusal := failure(data, code)
			if refusal == nil {
				if isQuery(data) {
					t.Fatal("a question has none")
				}
				continue
			}
			if !bytes.Equal(refusal[:2], data[:2]) || flags(refusal)&response == 0 || codeOf(refusal) != int(code) ||
				isQuery(refusal) || len(refusal) > len(data) {
				t.Fatalf("%q", refusal)
			}
			if err := new(dns.Msg).Unpack(refusal); err != nil && resolve.Question(data) == nil {
				t.Fatalf("%q: %v", refusal, err)
			}
		}
	})
}

// Whatever a guest with rules asks, it gets an answer of its own or none, and nothing is asked about a name that no rule allows.
func FuzzQuestion(f *testing.F) {
	seed(f)
	var asked atomic.Int64
	by := namedBy(f, allowing(good, "GOOD.example.com"), func() []netip.AddrPort {
		asked.Add(1)
		return nil
	})
	f.Fuzz(func(t *testing.T, data []byte) {
		if !isQuery(data) {
			return
		}
		before := asked.Load()
		answer := by.answer(t.Context(), data)
		if asked.Load() != before && !bytes.Contains(bytes.ToLower(data), []byte("\x04good\x07example\x03com\x00")) {
			t.Fatalf("%q was asked", data)
		}
		if answer == nil {
			return
		}
		reply := new(dns.Msg)
		if err := reply.Unpack(answer); err != nil {
			t.Fatalf("%q: %v", answer, err)
		}
		if !bytes.Equal(answer[:2], data[:2]) || !reply.Response || len(answer) > 1500 ||
			!bytes.Equal(resolve.Question(answer), resolve.Question(data)) {
			t.Fatalf("%q is no answer", answer)
		}
	})
}
