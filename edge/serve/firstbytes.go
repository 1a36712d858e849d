// Package serve carries connections of guests: it opens TLS, has requests judged, and passes on allowed ones.
package serve

import "atoll/policy"

// Kind is the kind of a connection's first bytes.
type Kind int

// The kinds of first bytes.
const (
	Unknown Kind = iota // more bytes are needed
	TLS
	HTTP
	Other
)

// The first byte of a record of TLS with a greeting.
const handshake = 0x16

// Sniff tells the kind of a connection's first bytes, as the relay does. It calls something HTTP only when its first line
// says so: other protocols of lines (SMTP, FTP, Redis) begin with words as well. TLS itself reads the content of a
// greeting.
func Sniff(prefix []byte) Kind {
	if len(prefix) > 1 && prefix[0] == handshake && prefix[1] == 3 {
		return TLS
	}
	switch policy.ReadFirstBytes(prefix).Kind {
	case policy.BeginsUnclear:
		return Unknown
	case policy.BeginsHTTP:
		return HTTP
	case policy.BeginsInvalid: // a line that is too long: the parser of HTTP refuses anything else
		return HTTP
	case policy.BeginsDisguised: // it is opened or fails, but passes nowhere as another protocol
		return TLS
	}
	return Other
}
