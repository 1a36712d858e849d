package search

import (
	"regexp"
	"strings"
	"unicode/utf8"

	"atoll/agent/fault"
)

const (
	globMost  = 1000
	globsMost = 100
)

// Glob is a pattern for paths: `*` and `?` stay within a name, `**` crosses directories, `[a-z]` and `{a,b}` choose.
type Glob struct {
	suffix string // of a pattern like *.go, which needs no expression
	whole  *regexp.Regexp
	byName bool
}

// NewGlob compiles a pattern for a path. With anywhere, a pattern without a slash is one for names at any depth.
func NewGlob(pattern string, anywhere bool) (*Glob, error) {
	if pattern == "" || len(pattern) > globMost {
		return nil, fault.New(fault.Invalid, "a glob has from 1 to %d bytes", globMost)
	}
	g := &Glob{byName: anywhere && !strings.Contains(pattern, "/")}
	if rest, star := strings.CutPrefix(pattern, "*"); g.byName && star && !strings.ContainsAny(rest, `*?[]{}\`) {
		g.suffix = rest
		return g, nil
	}
	text, err := expression(strings.TrimPrefix(pattern, "/"))
	if err != nil {
		return nil, err
	}
	g.whole, err = regexp.Compile(`(?s)\A(?:` + text + `)\z`)
	if err != nil {
		return nil, fault.New(fault.Invalid, "the glob %.200q: %v", pattern, err)
	}
	return g, nil
}

// Match tells whether the pattern fits a path without a leading slash, whose last part is the name.
func (g *Glob) Match(path, name string) bool {
	subject := path
	if g.byName {
		subject = name
	}
	if g.whole == nil {
		return strings.HasSuffix(subject, g.suffix)
	}
	return g.whole.MatchString(subject)
}

func expression(glob string) (string, error) {
	var out strings.Builder
	braces := 0
	for at := 0; at < len(glob); {
		rest := glob[at:]
		switch char := glob[at]; {
		case strings.HasPrefix(rest, "**/") && (at == 0 || glob[at-1] == '/'):
			out.WriteString(`(?:.*/)?`)
			at += 3
			continue
		case strings.HasPrefix(rest, "**"):
			out.WriteString(`.*`)
			at += 2
			continue
		case char == '*':
			out.WriteString(`[^/]*`)
		case char == '?':
			out.WriteString(`[^/]`)
		case char == '[':
			class, size := class(rest)
			if size == 0 {
				return "", fault.New(fault.Invalid, "the glob %.200q has a [ without a ]", glob)
			}
			out.WriteString(class)
			at += size
			continue
		case char == '{':
			braces++
			out.WriteString(`(?:`)
		case char == '}' && braces > 0:
			braces--
			out.WriteString(`)`)
		case char == ',' && braces > 0:
			out.WriteString(`|`)
		default:
			if char == '\\' && len(rest) > 1 {
				at++
			}
			_, size := utf8.DecodeRuneInString(glob[at:])
			out.WriteString(regexp.QuoteMeta(glob[at : at+size]))
			at += size
			continue
		}
		at++
	}
	if braces > 0 {
		return "", fault.New(fault.Invalid, "the glob %.200q has a { without a }", glob)
	}
	return out.String(), nil
}

// class turns the [...] that a glob begins with into one of an expression, and tells how long it was.
func class(glob string) (string, int) {
	start := 1
	if len(glob) > 1 && (glob[1] == '!' || glob[1] == '^') {
		start = 2
	}
	// A ] that comes first stands for itself.
	end := strings.IndexByte(glob[min(start+1, len(glob)):], ']')
	if end < 0 {
		return "", 0
	}
	end += start + 1
	body := strings.NewReplacer(`\`, `\\`, `[`, `\[`, `]`, `\]`, `^`, `\^`, `&`, `\&`).Replace(glob[start:end])
	if start == 2 {
		return `[^/` + body + `]`, end + 1
	}
	return `[` + body + `]`, end + 1
}

// Globs says which files are wanted: those of any pattern, or all, without those of a pattern that begins with `!`.
type Globs struct {
	wanted, unwanted []*Glob
}

// NewGlobs compiles patterns.
func NewGlobs(patterns []string) (*Globs, error) {
	if len(patterns) > globsMost {
		return nil, fault.New(fault.Invalid, "%d globs are more than %d", len(patterns), globsMost)
	}
	all := &Globs{}
	for _, pattern := range patterns {
		pattern, not := strings.CutPrefix(pattern, "!")
		glob, err := NewGlob(strings.TrimSuffix(pattern, "/"), true)
		if err != nil {
			return nil, err
		}
		if not {
			all.unwanted = append(all.unwanted, glob)
		} else {
			all.wanted = append(all.wanted, glob)
		}
	}
	return all, nil
}

// File tells whether a file is wanted.
func (g *Globs) File(path, name string) bool {
	return (len(g.wanted) == 0 || anyOf(g.wanted, path, name)) && !anyOf(g.unwanted, path, name)
}

// Directory tells whether wanted files may lie below a directory.
func (g *Globs) Directory(path, name string) bool { return !anyOf(g.unwanted, path, name) }

func anyOf(globs []*Glob, path, name string) bool {
	for _, glob := range globs {
		if glob.Match(path, name) {
			return true
		}
	}
	return false
}
