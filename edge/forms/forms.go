// Package forms knows the forms of a value, and finds them in passing data.
package forms

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"net/url"
	"slices"
)

// A form that is shorter than this is not looked for: it would be found by chance.
const shortest = 6

// Of returns a value unchanged, in base64 at each alignment, escaped for URLs and JSON, and in hex. Longer forms come
// first.
func Of(value []byte) [][]byte {
	if len(value) == 0 {
		return nil
	}
	found := [][]byte{bytes.Clone(value)}
	add := func(form []byte) {
		if len(form) >= shortest && !slices.ContainsFunc(found, func(each []byte) bool { return bytes.Equal(each, form) }) {
			found = append(found, form)
		}
	}
	for _, encoding := range []*base64.Encoding{base64.StdEncoding, base64.URLEncoding} {
		for offset := range 3 {
			add(aligned(encoding, value, offset))
		}
	}
	add([]byte(url.QueryEscape(string(value))))
	add([]byte(url.PathEscape(string(value))))
	add(inJSON(value, true))
	add(inJSON(value, false))
	add([]byte(hex.EncodeToString(value)))
	add(bytes.ToUpper([]byte(hex.EncodeToString(value))))
	slices.SortStableFunc(found, func(a, b []byte) int { return len(b) - len(a) })
	return found
}

// aligned is the part of the base64 of a longer text that the value alone decides, with offset bytes before it.
func aligned(encoding *base64.Encoding, value []byte, offset int) []byte {
	padded := append(make([]byte, offset), value...)
	encoded := []byte(encoding.WithPadding(base64.NoPadding).EncodeToString(padded))
	first := (offset*8 + 5) / 6
	last := len(padded) * 8 / 6
	return encoded[first:max(first, last)]
}

func inJSON(value []byte, escapeHTML bool) []byte {
	var out bytes.Buffer
	encoder := json.NewEncoder(&out)
	encoder.SetEscapeHTML(escapeHTML)
	if encoder.Encode(string(value)) != nil {
		return nil
	}
	text := bytes.TrimSuffix(out.Bytes(), []byte("\n"))
	return text[1 : len(text)-1]
}

// Finder looks for forms in a stream, also across the borders of its pieces.
type Finder struct {
	forms [][]byte
	most  int
	tail  []byte
}

// NewFinder makes a finder of the forms of these values.
func NewFinder(values [][]byte) *Finder {
	finder := &Finder{}
	for _, value := range values {
		finder.forms = append(finder.forms, Of(value)...)
	}
	for _, form := range finder.forms {
		finder.most = max(finder.most, len(form))
	}
	return finder
}

// Fresh is a finder of the same forms for another stream.
func (f *Finder) Fresh() *Finder {
	return &Finder{forms: f.forms, most: f.most}
}

// In tells whether a text has one of the forms, unchanged or with its escapes decoded.
func (f *Finder) In(text string) bool {
	if f.has([]byte(text)) {
		return true
	}
	decoded, err := url.QueryUnescape(text)
	return err == nil && decoded != text && f.has([]byte(decoded))
}

// Next takes the next piece of the stream and tells whether a form ended in it.
func (f *Finder) Next(piece []byte) bool {
	if len(f.forms) == 0 || len(piece) == 0 {
		return false
	}
	joined := append(f.tail, piece[:min(len(piece), f.most)]...)
	if f.has(joined) || f.has(piece) {
		return true
	}
	whole := piece
	if len(piece) < f.most {
		whole = joined
	}
	f.tail = bytes.Clone(whole[max(0, len(whole)-f.most+1):])
	return false
}

func (f *Finder) has(text []byte) bool {
	return slices.ContainsFunc(f.forms, func(form []byte) bool { return bytes.Contains(text, form) })
}

// Any tells whether there is something to look for.
func (f *Finder) Any() bool { return len(f.forms) > 0 }
