package policy

import (
	"errors"
	"math"
	"strconv"
	"strings"
	"unicode/utf8"
)

// A body that is judged is at most this long.
const (
	DocumentMost = 256 << 10
	nodesMost    = 64 << 10
	depthMost    = 64
)

var (
	errJSON          = errors.New("the body is not valid JSON")
	errJSONDuplicate = errors.New("a key is twice in the body")
	errJSONSize      = errors.New("the body nests too deep or has too many values")
)

type kind byte

const (
	kindNull kind = iota
	kindBool
	kindNumber
	kindText
	kindArray
	kindObject
)

// node is one value of a document. It keeps its place in the body, so that a value can be replaced without a change of any
// other byte.
type node struct {
	kind       kind
	start, end int
	text       string // of a string, number or bool
	keys       []string
	children   []*node
}

// parseDocument reads JSON more strictly than others do: text that two parsers may read differently is an error.
func parseDocument(body []byte) (*node, error) {
	reader := &documentReader{body: body, left: nodesMost}
	reader.space()
	root, err := reader.value(0)
	if err != nil {
		return nil, err
	}
	if reader.space(); reader.at != len(body) {
		return nil, errJSON
	}
	return root, nil
}

type documentReader struct {
	body []byte
	at   int
	left int
}

func (r *documentReader) space() {
	for r.at < len(r.body) && strings.IndexByte(" \t\r\n", r.body[r.at]) >= 0 {
		r.at++
	}
}

func (r *documentReader) peek() byte {
	if r.at < len(r.body) {
		return r.body[r.at]
	}
	return 0
}

func (r *documentReader) value(depth int) (*node, error) {
	if r.left--; r.left < 0 || depth > depthMost {
		return nil, errJSONSize
	}
	found := &node{start: r.at}
	var err error
	switch char := r.peek(); {
	case char == '{':
		err = r.object(found, depth)
	case char == '[':
		err = r.array(found, depth)
	case char == '"':
		found.kind = kindText
		found.text, err = r.text()
	case char == '-' || '0' <= char && char <= '9':
		found.kind = kindNumber
		found.text, err = r.number()
	default:
		err = r.word(found)
	}
	found.end = r.at
	return found, err
}

func (r *documentReader) word(found *node) error {
	for _, word := range []string{"null", "true", "false"} {
		if strings.HasPrefix(string(r.body[r.at:min(r.at+5, len(r.body))]), word) {
			r.at += len(word)
			if word != "null" {
				found.kind, found.text = kindBool, word
			}
			return nil
		}
	}
	return errJSON
}

func (r *documentReader) object(found *node, depth int) error {
	found.kind = kindObject
	seen := map[string]bool{}
	return r.members('}', func() error {
		if r.peek() != '"' {
			return errJSON
		}
		key, err := r.text()
		if err != nil {
			return err
		}
		folded := foldKey(key)
		if seen[folded] {
			return errJSONDuplicate
		}
		seen[folded] = true
		if r.space(); r.peek() != ':' {
			return errJSON
		}
		r.at++
		r.space()
		child, err := r.value(depth + 1)
		found.keys = append(found.keys, key)
		found.children = append(found.children, child)
		return err
	})
}

// foldKey makes keys equal that a server without regard to case takes for the same.
func foldKey(key string) string {
	return strings.ToLower(strings.ToUpper(key))
}

func (r *documentReader) array(found *node, depth int) error {
	found.kind = kindArray
	return r.members(']', func() error {
		child, err := r.value(depth + 1)
		found.children = append(found.children, child)
		return err
	})
}

func (r *documentReader) members(end byte, one func() error) error {
	r.at++
	if r.space(); r.peek() == end {
		r.at++
		return nil
	}
	for {
		r.space()
		if err := one(); err != nil {
			return err
		}
		r.space()
		switch r.peek() {
		case ',':
			r.at++
		case end:
			r.at++
			return nil
		default:
			return errJSON
		}
	}
}

func (r *documentReader) number() (string, error) {
	start := r.at
	if r.peek() == '-' {
		r.at++
	}
	if r.peek() == '0' {
		r.at++
	} else if !r.digits() {
		return "", errJSON
	}
	whole := true
	if r.peek() == '.' {
		r.at++
		if whole = false; !r.digits() {
			return "", errJSON
		}
	}
	if r.peek() == 'e' || r.peek() == 'E' {
		r.at++
		if r.peek() == '+' || r.peek() == '-' {
			r.at++
		}
		if whole = false; !r.digits() {
			return "", errJSON
		}
	}
	return canonicalNumber(string(r.body[start:r.at]), whole)
}

// canonicalNumber writes equal numbers equally, such as 1, 1.0 and 1e0.
func canonicalNumber(text string, whole bool) (string, error) {
	if whole && text != "-0" {
		return text, nil
	}
	value, err := strconv.ParseFloat(text, 64)
	if err != nil || math.IsInf(value, 0) {
		return "", errJSONSize
	}
	return strconv.FormatFloat(value+0, 'f', -1, 64), nil
}

func (r *documentReader) digits() bool {
	start := r.at
	for r.at < len(r.body) && '0' <= r.body[r.at] && r.body[r.at] <= '9' {
		r.at++
	}
	return r.at > start
}

func (r *documentReader) text() (string, error) {
	r.at++
	start := r.at
	for r.at < len(r.body) && r.body[r.at] != '"' && r.body[r.at] != '\\' && r.body[r.at] >= ' ' {
		r.at++
	}
	if r.peek() == '"' {
		text := string(r.body[start:r.at])
		r.at++
		return checkedText(text)
	}
	out := append(make([]byte, 0, r.at-start+64), r.body[start:r.at]...)
	for r.at < len(r.body) {
		char := r.body[r.at]
		switch {
		case char == '"':
			r.at++
			return checkedText(string(out))
		case char < ' ':
			return "", errJSON
		case char == '\\':
			found, err := r.escape()
			if err != nil {
				return "", err
			}
			out = utf8.AppendRune(out, found)
		default:
			out = append(out, char)
			r.at++
		}
	}
	return "", errJSON
}

func checkedText(text string) (string, error) {
	if !utf8.ValidString(text) {
		return "", errJSON
	}
	return text, nil
}

func (r *documentReader) escape() (rune, error) {
	r.at++
	char := r.peek()
	r.at++
	if char != 'u' {
		if at := strings.IndexByte(`"\/bfnrt`, char); at >= 0 && char != 0 {
			return rune("\"\\/\b\f\n\r\t"[at]), nil
		}
		return 0, errJSON
	}
	first, err := r.hex4()
	if err != nil {
		return 0, err
	}
	if first < 0xd800 || first > 0xdfff {
		return first, nil
	}
	if first > 0xdbff || r.peek() != '\\' {
		return 0, errJSON
	}
	if r.at++; r.peek() != 'u' {
		return 0, errJSON
	}
	r.at++
	second, err := r.hex4()
	if err != nil || second < 0xdc00 || second > 0xdfff {
		return 0, errJSON
	}
	return 0x10000 + (first-0xd800)<<10 + second - 0xdc00, nil
}

func (r *documentReader) hex4() (rune, error) {
	if r.at+4 > len(r.body) {
		return 0, errJSON
	}
	var value rune
	for _, char := range r.body[r.at : r.at+4] {
		if !isHex(char) {
			return 0, errJSON
		}
		value = value<<4 | rune(unhex(char))
	}
	r.at += 4
	return value, nil
}
