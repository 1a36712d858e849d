// Package change applies the changes of a rule: headers, secrets, and the scrubbing of their echoes.
package change

import (
	"bytes"
	"encoding/json"
	"errors"
	"slices"
	"sync"
	"unicode/utf16"
	"unicode/utf8"

	"atoll/policy"
)

// SecretText is a text of JSON that is kept in memory that can be erased.
type SecretText []byte

var errSecretText = errors.New("a secret is not a text")

// UnmarshalJSON decodes a string of JSON without making a string of it.
func (s *SecretText) UnmarshalJSON(text []byte) error {
	if len(text) < 2 || text[0] != '"' {
		return errSecretText
	}
	text = text[1 : len(text)-1]
	out := make([]byte, 0, len(text))
	for i := 0; i < len(text); i++ {
		if text[i] != '\\' {
			out = append(out, text[i])
			continue
		}
		i++
		if text[i] != 'u' {
			at := bytes.IndexByte([]byte(`"\/bfnrt`), text[i])
			out = append(out, "\"\\/\b\f\n\r\t"[at])
			continue
		}
		char := hex4(text[i+1:])
		i += 4
		if utf16.IsSurrogate(char) && i+6 < len(text)+0 && text[i+1] == '\\' && text[i+2] == 'u' {
			char = utf16.DecodeRune(char, hex4(text[i+3:]))
			i += 6
		}
		out = utf8.AppendRune(out, char)
	}
	*s = out
	return nil
}

// hex4 reads four digits that the decoder has checked.
func hex4(text []byte) rune {
	var number [2]byte
	for i, char := range text[:4] {
		digit := bytes.IndexByte([]byte("0123456789abcdef"), char|0x20)
		if char <= '9' {
			digit = int(char - '0')
		}
		number[i/2] = number[i/2]<<4 | byte(digit)
	}
	return rune(number[0])<<8 | rune(number[1])
}

var _ json.Unmarshaler = (*SecretText)(nil)

// Secrets are the values of one policy. They are erased when the next one replaces them.
type Secrets struct {
	mu     sync.RWMutex
	values map[string]SecretText
	bound  map[string][]string
}

// NewSecrets owns the values from now on. A secret that is bound goes to hosts that match one of these patterns only.
func NewSecrets(values map[string]SecretText, bound map[string][]string) *Secrets {
	return &Secrets{values: values, bound: bound}
}

// May tells whether a secret may be sent to a host.
func (s *Secrets) May(name, host string) bool {
	patterns, isBound := s.bound[name]
	return !isBound || slices.ContainsFunc(patterns, func(each string) bool { return policy.MatchesHost(each, host) })
}

// Use gives a copy of a value, which the caller drops soon.
func (s *Secrets) Use(name string) ([]byte, bool) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	value, ok := s.values[name]
	return bytes.Clone(value), ok
}

// Wipe overwrites all values.
func (s *Secrets) Wipe() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, value := range s.values {
		clear(value)
	}
	s.values = nil
}
