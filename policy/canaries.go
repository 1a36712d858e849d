package policy

import (
	"encoding/base32"
	"encoding/base64"
	"encoding/hex"
	"slices"
	"strings"
	"unicode/utf8"
)

// A form of a canary that is shorter would be found by chance.
const canaryLeast = 6

// Canaries are values that a sandbox can only have stolen, and that DNS could carry out. A nil value finds none.
//
// Names have no case, and a value may be cut into labels anywhere. So both are compared in lower case, and without dots.
type Canaries struct{ forms []string }

// NewCanaries makes values ready to be looked for.
func NewCanaries(values []string) *Canaries {
	made := &Canaries{}
	for _, value := range values {
		data := []byte(value)
		for _, form := range []string{
			joined(value), hex.EncodeToString(data),
			strings.ToLower(base32.StdEncoding.WithPadding(base32.NoPadding).EncodeToString(data)),
			strings.ToLower(base32.HexEncoding.WithPadding(base32.NoPadding).EncodeToString(data)),
			strings.ToLower(base64.RawURLEncoding.EncodeToString(data)),
		} {
			if utf8.RuneCountInString(form) >= canaryLeast {
				made.forms = append(made.forms, form)
			}
		}
	}
	return made
}

// InName tells whether a name has a value in it: as it is, in hexadecimal, base32 or base64.
func (c *Canaries) InName(name string) bool {
	if len(c.forms) == 0 {
		return false
	}
	text := joined(name)
	return slices.ContainsFunc(c.forms, func(form string) bool { return strings.Contains(text, form) })
}

func joined(text string) string { return strings.ReplaceAll(strings.ToLower(text), ".", "") }
