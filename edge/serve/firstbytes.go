// Package serve carries connections of guests: it opens TLS, has requests judged, and passes on what is allowed.
package serve

import (
	"bytes"
	"strings"
)

// Kind is what the first bytes of a connection say.
type Kind int

// What a connection may begin with.
const (
	Unknown Kind = iota // more bytes are needed
	TLS
	HTTP
	Other
)

const (
	longestMethod = 32
	// A first line this long is left to the HTTP parser, which refuses what is not HTTP.
	longestLine = 8 << 10
)

// Sniff tells what a connection begins with. It calls something HTTP only when its first line says so: other protocols of
// lines (SMTP, FTP, Redis) begin with words as well.
func Sniff(prefix []byte) Kind {
	if len(prefix) == 0 {
		return Unknown
	}
	if prefix[0] == 0x16 {
		if len(prefix) == 1 {
			return Unknown
		}
		if prefix[1] == 3 {
			return TLS
		}
		return Other
	}
	space := bytes.IndexByte(prefix, ' ')
	method := prefix
	if space >= 0 {
		method = prefix[:space]
	}
	if space == 0 || len(method) > longestMethod {
		return Other
	}
	for _, char := range method {
		if char <= ' ' || char >= 0x7f || strings.IndexByte("\"(),/:;<=>?@[\\]{}", char) >= 0 {
			return Other
		}
	}
	if space < 0 {
		return Unknown
	}
	return sniffLine(prefix)
}

func sniffLine(prefix []byte) Kind {
	line, _, whole := bytes.Cut(prefix, []byte("\n"))
	if !whole {
		if len(prefix) > longestLine {
			return HTTP
		}
		return Unknown
	}
	line = bytes.TrimSuffix(line, []byte("\r"))
	version := line[bytes.LastIndexByte(line, ' ')+1:]
	if len(version) == len("HTTP/1.1") && bytes.HasPrefix(version, []byte("HTTP/")) {
		return HTTP
	}
	return Other
}
