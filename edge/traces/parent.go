// Package traces makes spans of requests that belong to a client's trace.
package traces

import (
	"net/http"
	"strings"
)

// Parent names a span of a trace, in lower-case hexadecimal digits.
type Parent struct {
	Trace  string `json:"trace"`
	Parent string `json:"parent"`
}

const (
	version  = "00-"
	textLong = 55
)

// ParentOf reads the header traceparent of W3C Trace Context. It is false for a trace that is not recorded, and for any
// other text: nothing is guessed of a later version.
func ParentOf(header http.Header) (Parent, bool) {
	values := header["Traceparent"]
	if len(values) != 1 || len(values[0]) != textLong || !strings.HasPrefix(values[0], version) {
		return Parent{}, false
	}
	parts := strings.Split(values[0], "-")
	if len(parts) != 4 || len(parts[1]) != 32 || len(parts[2]) != 16 {
		return Parent{}, false
	}
	for _, part := range parts[1:] {
		if strings.Trim(part, "0123456789abcdef") != "" {
			return Parent{}, false
		}
	}
	isRecorded := strings.ContainsRune("13579bdf", rune(parts[3][1]))
	isZero := strings.Trim(parts[1], "0") == "" || strings.Trim(parts[2], "0") == ""
	return Parent{parts[1], parts[2]}, isRecorded && !isZero
}
