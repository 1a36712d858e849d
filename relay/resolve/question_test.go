package resolve

import (
	"bytes"
	"testing"

	"github.com/miekg/dns"
)

func TestAQuestionIsANameThatEndsWithTypeAndClass(t *testing.T) {
	head := make([]byte, headerBytes)
	whole := []byte("\x07example\x03org\x00\x00\x01\x00\x01")
	label := append([]byte{63}, bytes.Repeat([]byte("a"), 63)...)
	for _, c := range []struct {
		behind, want []byte
	}{
		{whole, whole},
		{append(bytes.Clone(whole), "more"...), whole},
		{[]byte("\x00\x00\x01\x00\x01"), []byte("\x00\x00\x01\x00\x01")},
		{whole[:len(whole)-1], nil},
		{[]byte("\xc0\x0c\x00\x01\x00\x01"), nil},
		{[]byte("\x40\x00\x00\x01\x00\x01"), nil},
		{append(bytes.Repeat(label, 4), "\x00\x00\x01\x00\x01"...), nil},
		{append(bytes.Repeat(label, 3), "\x00\x00\x01\x00\x01"...), append(bytes.Repeat(label, 3), "\x00\x00\x01\x00\x01"...)},
		{nil, nil},
	} {
		if got := Question(append(bytes.Clone(head), c.behind...)); !bytes.Equal(got, c.want) {
			t.Errorf("%q: %q", c.behind, got)
		}
	}
	if Question(head[:3]) != nil {
		t.Error("a part of a header has a question")
	}
}

func TestAnAnswerHasTheIDAndTheQuestionInAnyCaseOfLetters(t *testing.T) {
	query := queryFor(t, "example.org.", dns.TypeA)
	right := coded(query, 0)
	for _, c := range []struct {
		reply []byte
		want  bool
	}{
		{right, true},
		{bytes.Replace(right, []byte("example"), []byte("eXaMpLe"), 1), true},
		{bytes.Replace(right, []byte("org"), []byte("net"), 1), false},
		{append([]byte{9, 9}, right[2:]...), false},
		{query, false},
		{right[:11], false},
		{append(append([]byte{}, right[:2]...), 0x81, 0x81, 0, 0, 0, 0, 0, 0, 0, 0), true}, // without a question, if it says no
		{append(append([]byte{}, right[:2]...), 0x81, 0x80, 0, 0, 0, 0, 0, 0, 0, 0), false},
	} {
		if got := answers(query, c.reply); got != c.want {
			t.Errorf("%q: %v", c.reply, got)
		}
	}
}

// Whatever a nameserver, or somebody in its place, sends is an answer to the question or none.
func FuzzReply(f *testing.F) {
	query := queryFor(f, "example.org.", dns.TypeA)
	full := replyWith(f, query, "example.org. 60 IN A 192.0.2.1", "example.org. 60 IN CNAME a.b.")
	for _, data := range [][]byte{coded(query, 0), coded(query, 3), full, full[:len(full)-3], query, nil, make([]byte, 12)} {
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		if answers(query, data) {
			if !bytes.Equal(data[:2], query[:2]) || flags(data)&response == 0 {
				t.Fatalf("%q answers", data)
			}
			isUnwilling(data)
		}
		if asked := Question(data); asked != nil && answers(data, data) != (flags(data)&response != 0 &&
			(data[4] != 0 || data[5] != 0 || flags(data)&codeMask != 0)) {
			t.Fatalf("%q has %q", data, asked)
		}
		message, ok := unpacked(data)
		if !ok {
			return
		}
		if ttl := ttlOf(message); ttl < leastTTL || ttl > mostTTL {
			t.Fatalf("it is kept for %s", ttl)
		}
		for _, kind := range []uint16{dns.TypeA, dns.TypeAAAA} {
			for _, address := range addressesIn(message, kind) {
				if address.Is4() != (kind == dns.TypeA) || address.Zone() != "" {
					t.Fatalf("%s is no address of %s", address, dns.Type(kind))
				}
			}
		}
	})
}
