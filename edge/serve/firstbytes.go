// Package serve carries connections of guests: it opens TLS, has requests judged, and passes on what is allowed.
package serve

import (
	"bytes"
	"regexp"
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
	// What servers take for the space between the words of a request line.
	blanks = " \t\v\f"
)

// Servers read more as a request than the standard says: the version in lower case, blanks behind it, and no version at all
// beside a URL (HTTP/0.9). The relay has the same patterns, and testdata/first_lines.json holds both to the same answers.
var (
	requestLine = regexp.MustCompile(`(?is)^[^ \t\v\f]+[ \t\v\f].*[ \t\v\f]HTTP/\d`)
	shortLine   = regexp.MustCompile(`(?i)^[^ \t\v\f]+[ \t\v\f]+[a-z][a-z0-9+.-]*://[^ \t\v\f]*[ \t\v\f\r]*$`)
)

// Sniff tells what a connection begins with. It calls something HTTP only when its first line says so: other protocols of
// lines (SMTP, FTP, Redis) begin with words as well. Servers skip empty lines before a request.
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
	text := bytes.TrimLeft(prefix, "\r\n")
	end := bytes.IndexAny(text, blanks)
	method := text
	if end >= 0 {
		method = text[:end]
	}
	if end == 0 || len(method) > longestMethod {
		return Other
	}
	for _, char := range method {
		if char <= ' ' || char >= 0x7f || strings.IndexByte("\"(),/:;<=>?@[\\]{}", char) >= 0 {
			return Other
		}
	}
	if line, _, whole := bytes.Cut(text, []byte("\n")); whole && end >= 0 {
		if requestLine.Match(line) || shortLine.Match(line) {
			return HTTP
		}
		return Other
	}
	if len(prefix) > longestLine {
		return HTTP
	}
	return Unknown
}
