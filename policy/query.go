package policy

import (
	"net/url"
	"strings"
	"unicode/utf8"
)

// Query is the query of a request as sent, with its parameters decoded.
type Query struct {
	Send       string
	parameters []parameter
	// Servers may read it differently: a `;`, a wrong escape, no UTF-8.
	unclear bool
}

type parameter struct{ name, value string }

func parseQuery(raw string) (Query, error) {
	query := Query{Send: raw, unclear: strings.Contains(raw, ";")}
	if raw == "" {
		return query, nil
	}
	for i := 0; i < len(raw); i++ {
		if raw[i] <= ' ' || raw[i] == 0x7f || raw[i] == '#' {
			return Query{}, errQueryControl
		}
	}
	for piece := range strings.SplitSeq(raw, "&") {
		if piece == "" {
			continue
		}
		found, ok := decodePiece(piece)
		query.unclear = query.unclear || !ok
		query.parameters = append(query.parameters, found)
	}
	return query, nil
}

func decodePiece(piece string) (parameter, bool) {
	name, value, _ := strings.Cut(piece, "=")
	decodedName, err1 := url.QueryUnescape(name)
	decodedValue, err2 := url.QueryUnescape(value)
	if err1 != nil || err2 != nil {
		return parameter{name, value}, false
	}
	return parameter{decodedName, decodedValue}, utf8.ValidString(decodedName) && utf8.ValidString(decodedValue)
}

// judge tells whether the parameter is there exactly once, with a value that one of the globs matches.
func (q *Query) judge(name string, globs []glob) tri {
	if q.unclear {
		return unclear
	}
	result, count := no, 0
	for _, each := range q.parameters {
		base, _, _ := strings.Cut(each.name, "[")
		switch {
		case each.name == name:
			count++
			if anyMatches(globs, each.value) {
				result = yes
			}
		case strings.EqualFold(strings.TrimSpace(base), name):
			return unclear
		}
	}
	if count > 1 {
		return unclear
	}
	return result
}

// WithoutParameter removes each parameter of that name, in any case and also behind a `;`, and leaves the others unchanged.
func WithoutParameter(raw, name string) string {
	if raw == "" {
		return raw
	}
	var kept []string
	for piece := range strings.SplitSeq(raw, "&") {
		if !hasParameter(piece, name) {
			kept = append(kept, piece)
		}
	}
	return strings.Join(kept, "&")
}

func hasParameter(piece, name string) bool {
	// A name may have a `;` itself.
	if found, _ := decodePiece(piece); strings.EqualFold(found.name, name) {
		return true
	}
	for each := range strings.SplitSeq(piece, ";") {
		if found, _ := decodePiece(each); strings.EqualFold(found.name, name) {
			return true
		}
	}
	return false
}
