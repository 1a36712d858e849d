// Package serve carries connections of guests: it opens TLS, has requests judged, and passes on what is allowed.
package serve

import "atoll/policy"

// Kind is what the first bytes of a connection say.
type Kind int

// What a connection may begin with.
const (
	Unknown Kind = iota // more bytes are needed
	TLS
	HTTP
	Other
)

// The first byte of a record of TLS with a greeting.
const handshake = 0x16

// Sniff tells what a connection begins with, as the relay does. It calls something HTTP only when its first line says so:
// other protocols of lines (SMTP, FTP, Redis) begin with words as well. What TLS really says, TLS itself reads.
func Sniff(prefix []byte) Kind {
	if len(prefix) > 1 && prefix[0] == handshake && prefix[1] == 3 {
		return TLS
	}
	switch policy.ReadFirstBytes(prefix).Kind {
	case policy.BeginsUnclear:
		return Unknown
	case policy.BeginsHTTP:
		return HTTP
	case policy.BeginsInvalid: // a line that is too long: the parser of HTTP refuses what is not HTTP
		return HTTP
	case policy.BeginsDisguised: // it is opened or fails, but passes nowhere as another protocol
		return TLS
	}
	return Other
}
