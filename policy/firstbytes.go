package policy

import "bytes"

// Beginning is the kind of a connection's first bytes.
type Beginning string

// The kinds of first bytes.
const (
	BeginsUnclear Beginning = "more" // more bytes are needed to tell
	BeginsTLS     Beginning = "tls"
	BeginsHTTP    Beginning = "http"
	BeginsOther   Beginning = "other"
	// BeginsInvalid is a broken greeting of TLS, or a line that is longer than any server reads.
	BeginsInvalid Beginning = "invalid"
	// BeginsDisguised is a beginning that some servers take for TLS, but without a readable greeting.
	BeginsDisguised Beginning = "disguised"
)

const (
	// FirstBytesMost is the longest beginning that is read.
	FirstBytesMost = 1 << 16
	// FirstLineMost is the longest first line that is waited for.
	FirstLineMost = 8 << 10
)

// FirstBytes has the facts in the first bytes of a connection about its real destination.
type FirstBytes struct {
	Kind Beginning
	// Wanted says how many bytes from the beginning are needed at least, where it is unclear.
	Wanted int
	// SendOn tells that no server acts on an unclear beginning before its end. It may be sent on after a moment: some
	// protocols send a word and wait.
	SendOn bool
	// ServerName is the name in a greeting of TLS; empty if it has none.
	ServerName string
	// HidesName tells whether the greeting may hide another name (ECH).
	HidesName bool
}

// ReadFirstBytes tells what a connection is that begins with these bytes. A caller that has fewer than Wanted need not ask
// again, so that a guest that sends single bytes costs little.
func ReadFirstBytes(data []byte) FirstBytes {
	if len(data) == 0 {
		return FirstBytes{Kind: BeginsUnclear, Wanted: 1}
	}
	if data[0] == recordHandshake {
		switch {
		case len(data) == 1:
			return wanting(2)
		case data[1] == versionTLS:
			return readRecords(data)
		}
	}
	switch is, mayBe := disguise(data); {
	case is:
		return FirstBytes{Kind: BeginsDisguised}
	case mayBe:
		return FirstBytes{Kind: BeginsUnclear, Wanted: len(data) + 1, SendOn: true}
	}
	return readLine(data)
}

// readLine tells whether this is a request of HTTP, also of HTTP/2. Servers skip empty lines before it.
func readLine(data []byte) FirstBytes {
	text := bytes.TrimLeft(data, "\r\n")
	if !mayBeMethod(text) {
		return FirstBytes{Kind: BeginsOther}
	}
	line, _, isWhole := bytes.Cut(text, []byte("\n"))
	switch {
	case isWhole && isRequest(line):
		return FirstBytes{Kind: BeginsHTTP}
	case isWhole:
		return FirstBytes{Kind: BeginsOther}
	// A line that long is nothing that a server of another protocol would read either.
	case len(data) > FirstLineMost:
		return FirstBytes{Kind: BeginsInvalid}
	}
	return FirstBytes{Kind: BeginsUnclear, Wanted: len(data) + 1, SendOn: true}
}

// Passage is the verdict on a connection by its first bytes.
type Passage string

// The verdicts by first bytes.
const (
	PassOn   Passage = "pass"
	LookInto Passage = "inspect" // its requests are judged one by one
	Refuse   Passage = "refuse"
)

// Passage tells whether a connection to a plain name may go on unchanged.
//
// A server may have several names, and a rule allows one of them. So TLS must ask for that name. Plain HTTP says the name in
// each request, and a greeting that may hide a name must be opened: both are looked into.
func (f FirstBytes) Passage(name string) Passage {
	switch {
	case f.Kind == BeginsOther:
		return PassOn
	case f.Kind == BeginsHTTP, f.Kind == BeginsTLS && f.HidesName:
		return LookInto
	case f.Kind == BeginsTLS && f.ServerName != "" && PlainHost(f.ServerName) == name:
		return PassOn
	}
	return Refuse
}
