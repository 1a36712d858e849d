package models

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
)

// member is one of the members of an object, and where its value lies in the text.
type member struct {
	key        string
	start, end int
}

// object is the text of one of JSON, with its members.
type object struct {
	text    []byte
	members []member
	last    int // where the brace lies that closes it
}

var errNoObject = errors.New("the body is no object of JSON")

// parseObject finds the members of an object. It refuses one with a key twice, of which servers may take either.
func parseObject(text []byte) (*object, error) {
	if !json.Valid(text) {
		return nil, errNoObject
	}
	at := skipSpace(text, 0)
	if text[at] != '{' {
		return nil, errNoObject
	}
	made := &object{text: text}
	seen := map[string]bool{}
	for at = skipSpace(text, at+1); text[at] != '}'; at = skipSpace(text, at) {
		if text[at] == ',' {
			at = skipSpace(text, at+1)
		}
		keyEnd := skipText(text, at)
		var key string
		if err := json.Unmarshal(text[at:keyEnd], &key); err != nil {
			return nil, errNoObject
		}
		start := skipSpace(text, skipSpace(text, keyEnd)+1) // behind the colon
		end := skipValue(text, start)
		if folded := strings.ToLower(key); seen[folded] {
			return nil, fmt.Errorf("the body has %.80q twice", key)
		} else {
			seen[folded] = true
		}
		made.members = append(made.members, member{key, start, end})
		at = end
	}
	made.last = at
	return made, nil
}

func skipSpace(text []byte, at int) int {
	for at < len(text) && (text[at] == ' ' || text[at] == '\t' || text[at] == '\n' || text[at] == '\r') {
		at++
	}
	return at
}

// skipText gives the end of a string that begins here.
func skipText(text []byte, at int) int {
	for at++; text[at] != '"'; at++ {
		if text[at] == '\\' {
			at++
		}
	}
	return at + 1
}

// skipValue gives the end of a value that begins here.
func skipValue(text []byte, at int) int {
	depth := 0
	for {
		switch text[at] {
		case '"':
			at = skipText(text, at) - 1
		case '{', '[':
			depth++
		case '}', ']':
			depth--
		default:
			if depth == 0 { // a number, or a word
				for !bytes.ContainsRune([]byte(" \t\r\n,]}"), rune(text[at])) {
					at++
				}
				return at
			}
		}
		at++
		if depth == 0 {
			return at
		}
	}
}

// get is the value of a member; nil if there is none.
func (o *object) get(key string) json.RawMessage {
	for _, each := range o.members {
		if each.key == key {
			return o.text[each.start:each.end]
		}
	}
	return nil
}

// edits are new values of members. All other bytes stay.
type edits map[string]string

// edited reads the text with other values, without a copy of it. Members that are missing come last.
func (o *object) edited(by edits, order ...string) (io.Reader, int64) {
	var pieces []io.Reader
	size, at := int64(0), 0
	piece := func(text []byte) {
		pieces = append(pieces, bytes.NewReader(text))
		size += int64(len(text))
	}
	for _, each := range o.members {
		if value, ok := by[each.key]; ok {
			piece(o.text[at:each.start])
			piece([]byte(value))
			at = each.end
		}
	}
	piece(o.text[at:o.last])
	isEmpty := len(o.members) == 0
	for _, key := range order {
		value, ok := by[key]
		if !ok || o.get(key) != nil {
			continue
		}
		comma := ","
		if isEmpty {
			comma, isEmpty = "", false
		}
		piece(fmt.Appendf(nil, `%s%q:%s`, comma, key, value))
	}
	piece(o.text[o.last:])
	return io.MultiReader(pieces...), size
}
