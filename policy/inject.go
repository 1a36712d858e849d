package policy

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"golang.org/x/net/http/httpguts"
)

// Inject says where secrets go.
type Inject struct {
	Secret string `json:"secret"` // that {} stands for; empty: the format names all of them
	Into   string `json:"into"`
	Key    string `json:"key"`
	Format string `json:"format"`

	pieces []piece
}

// piece is a text of a format, or the place of a secret.
type piece struct{ text, secret string }

func (i *Inject) check() error {
	if i.Format == "" {
		i.Format = "{}"
	}
	var err error
	if i.pieces, err = readFormat(i.Format, i.Secret); err != nil {
		return err
	}
	secrets := i.Secrets()
	switch {
	case i.Key == "" && i.Into != "basic":
		return errors.New("an inject lacks its key")
	case !slices.Contains([]string{"header", "basic", "query", "path", "json"}, i.Into):
		return fmt.Errorf("a secret cannot go into %q", i.Into)
	case len(secrets) == 0 || i.Secret != "" && !slices.Contains(secrets, i.Secret):
		return errors.New("the format of an inject lacks the place of its secret")
	case i.Into == "header" && (!mayChange(i.Key) || !httpguts.ValidHeaderFieldValue(i.Format)):
		return fmt.Errorf("a secret cannot go into the header %q", i.Key)
	case i.Into == "basic" && strings.ContainsAny(i.Key, ":\r\n\x00"):
		return errors.New("the user name of an inject has a colon or a control character")
	}
	return nil
}

var errBrace = errors.New("the format of an inject has a brace that begins or ends no placeholder")

// readFormat reads a text with placeholders: {} for the secret of this name, {NAME} for another one, {{ and }} for braces.
func readFormat(format, secret string) ([]piece, error) {
	var pieces []piece
	text := ""
	for format != "" {
		at := strings.IndexAny(format, "{}")
		if at < 0 {
			text += format
			break
		}
		text += format[:at]
		brace, rest := format[at:at+1], format[at+1:]
		if strings.HasPrefix(rest, brace) {
			text, format = text+brace, rest[1:]
			continue
		}
		end := strings.IndexAny(rest, "{}")
		if brace == "}" || end < 0 || rest[end] == '{' {
			return nil, errBrace
		}
		name := rest[:end]
		if name == "" {
			name = secret
		}
		if name == "" {
			return nil, errors.New("an inject lacks the secret of its {}")
		}
		pieces = append(pieces, piece{text: text}, piece{secret: name})
		text, format = "", rest[end+1:]
	}
	return append(pieces, piece{text: text}), nil
}

// Secrets are the names of the secrets that are sent, each once, in the order of the format.
func (i *Inject) Secrets() []string {
	var names []string
	for _, each := range i.pieces {
		if each.secret != "" && !slices.Contains(names, each.secret) {
			names = append(names, each.secret)
		}
	}
	return names
}

// Fill is the format with these values in the places of their secrets.
func (i *Inject) Fill(values map[string][]byte) string {
	var out strings.Builder
	for _, each := range i.pieces {
		out.WriteString(each.text)
		out.Write(values[each.secret])
	}
	return out.String()
}

// Title names the secrets, for people.
func (i *Inject) Title() string { return strings.Join(i.Secrets(), ", ") }
