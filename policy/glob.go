package policy

import "strings"

// glob is a compiled pattern. A star stays within a segment of a path, a double star crosses segments. In a text that is
// no path, both match anything.
type glob struct {
	tokens []token
	prefix string // the literal text before the first star
	exact  bool   // there is no star
}

type token struct {
	star    bool
	crosses bool
	char    byte
}

func textGlob(pattern string) glob {
	return compileGlob(pattern, false)
}

// pathGlob compiles a pattern for views of paths: its escapes have the same meaning as in a path.
func pathGlob(pattern string) glob {
	return compileGlob(pattern, true)
}

func compileGlob(pattern string, path bool) glob {
	var tokens []token
	var prefix strings.Builder
	stars := 0
	add := func(char byte) {
		tokens = append(tokens, token{char: char})
		if stars == 0 {
			prefix.WriteByte(char)
		}
	}
	for i := 0; i < len(pattern); i++ {
		char := pattern[i]
		switch {
		case char == '*':
			crosses := !path
			for i+1 < len(pattern) && pattern[i+1] == '*' {
				crosses = true
				i++
			}
			stars++
			tokens = append(tokens, token{star: true, crosses: crosses})
		case char == '%' && path && i+2 < len(pattern) && isHex(pattern[i+1]) && isHex(pattern[i+2]):
			value := unhex(pattern[i+1])<<4 | unhex(pattern[i+2])
			for _, each := range []byte(viewOfEscape(value)) {
				add(each)
			}
			i += 2
		default:
			add(char)
		}
	}
	return glob{tokens: tokens, prefix: prefix.String(), exact: stars == 0}
}

// match goes back to the last star when the text does not fit. A star takes as little as it can: what it leaves can be
// taken by the stars behind it, so earlier stars need no second try.
func (g *glob) match(text string) bool {
	if g.exact {
		return text == g.prefix
	}
	if !strings.HasPrefix(text, g.prefix) {
		return false
	}
	at, next := len(g.prefix), len(g.prefix)
	near, nearAt, far, farAt := -1, 0, -1, 0
	for at < len(text) || next < len(g.tokens) {
		if next < len(g.tokens) {
			switch current := g.tokens[next]; {
			case current.star && current.crosses:
				far, farAt, near = next, at, -1
				next++
				continue
			case current.star:
				near, nearAt = next, at
				next++
				continue
			case at < len(text) && current.char == text[at]:
				at++
				next++
				continue
			}
		}
		switch {
		case near >= 0 && nearAt < len(text) && text[nearAt] != '/':
			nearAt++
			at, next = nearAt, near+1
		case far >= 0 && farAt < len(text):
			farAt++
			at, next, near = farAt, far+1, -1
		default:
			return false
		}
	}
	return true
}

// lower has the glob match texts that are lowered.
func (g *glob) lower() {
	g.prefix = lowered(g.prefix)
	for i := range g.tokens {
		g.tokens[i].char = lowerByte(g.tokens[i].char)
	}
}

// lowered is a text with the letters of ASCII in lower case. All other bytes stay.
func lowered(text string) string {
	out := []byte(text)
	for i := range out {
		out[i] = lowerByte(out[i])
	}
	return string(out)
}

func lowerByte(char byte) byte {
	if 'A' <= char && char <= 'Z' {
		return char + 'a' - 'A'
	}
	return char
}

func anyMatches(globs []glob, text string) bool {
	for i := range globs {
		if globs[i].match(text) {
			return true
		}
	}
	return false
}

func textGlobs(patterns []string) []glob {
	globs := make([]glob, len(patterns))
	for i, pattern := range patterns {
		globs[i] = textGlob(pattern)
	}
	return globs
}

func pathGlobs(patterns []string) []glob {
	globs := make([]glob, len(patterns))
	for i, pattern := range patterns {
		globs[i] = pathGlob(pattern)
	}
	return globs
}

func isHex(char byte) bool {
	return '0' <= char && char <= '9' || 'a' <= char && char <= 'f' || 'A' <= char && char <= 'F'
}

func unhex(char byte) byte {
	switch {
	case char <= '9':
		return char - '0'
	case char <= 'F':
		return char - 'A' + 10
	}
	return char - 'a' + 10
}
