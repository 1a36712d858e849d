package policy

import (
	"bytes"
	"strings"
)

// Servers read more as a request than the standard says: any method, the version in lower case, blanks behind it, and no
// version at all beside a URL (HTTP/0.9). The patterns are those of the supervisor (network/first_bytes.py). A guest chooses
// the line, so they are no regular expressions here: those took 10 ms for the longest one.

const (
	// What servers take for the space between the words of a request line.
	blanks        = " \t\v\f"
	methodMost    = 32
	afterMethod   = "!#$%&'*+-.^_`|~" // besides letters and digits
	afterScheme   = "+-."
	versionPrefix = "HTTP/"
)

// mayBeMethod tells whether a text begins with a method and a blank, or may still do so.
func mayBeMethod(text []byte) bool {
	for i, char := range text {
		if i > 0 && strings.IndexByte(blanks, char) >= 0 {
			return true
		}
		if i == methodMost || !isAlphanumeric(char) && strings.IndexByte(afterMethod, char) < 0 {
			return false
		}
	}
	return true
}

// isRequest tells whether a whole line is a request.
func isRequest(line []byte) bool {
	at := bytes.IndexAny(line, blanks)
	return at > 0 && (hasVersion(line[at+1:]) || isURL(bytes.TrimLeft(line[at:], blanks)))
}

// hasVersion tells whether there is a version of HTTP behind a blank. More may follow it.
func hasVersion(text []byte) bool {
	for at := 0; ; at++ {
		slash := bytes.IndexByte(text[at:], '/')
		if slash < 0 {
			return false
		}
		at += slash
		begin := at + 1 - len(versionPrefix)
		if begin > 0 && at+1 < len(text) && isDigit(text[at+1]) && strings.IndexByte(blanks, text[begin-1]) >= 0 &&
			bytes.EqualFold(text[begin:at+1], []byte(versionPrefix)) {
			return true
		}
	}
}

// isURL tells whether a text is a URL with a host, and nothing but blanks behind it.
func isURL(text []byte) bool {
	scheme, rest, found := bytes.Cut(text, []byte("://"))
	if !found || len(scheme) == 0 || isDigit(scheme[0]) {
		return false
	}
	for i, char := range scheme {
		if !isAlphanumeric(char) && (i == 0 || strings.IndexByte(afterScheme, char) < 0) {
			return false
		}
	}
	end := bytes.IndexAny(rest, blanks)
	return end < 0 || len(bytes.Trim(rest[end:], blanks+"\r")) == 0
}

func isAlphanumeric(char byte) bool { return isDigit(char) || 'a' <= char|0x20 && char|0x20 <= 'z' }

func isDigit(char byte) bool { return '0' <= char && char <= '9' }
