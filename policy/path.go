package policy

import (
	"errors"
	"regexp"
	"strings"
	"unicode/utf8"
)

// Path is a request's path as sent, and every way in which a server may read it.
//
// Servers differ in the meaning of `;`, `//`, `%2F` and `%2541`, and each meaning is in use somewhere. So each reading is a
// view: an allowing rule must fit all views, a denying rule needs to fit one.
type Path struct {
	Send  string
	Views []string
	// Not text in UTF-8: no condition on paths can be judged.
	unclear bool
}

var (
	errPathStart   = errors.New("the path does not begin with a slash")
	errPathEscape  = errors.New("the path has an incomplete % escape")
	errPathControl = errors.New("the path has a control character, a space or a fragment")
	errPathSlash   = errors.New("the path has a backslash")
	errPathDots    = errors.New("the path has . or .. beside //, ;, %2F or %25, which servers read in different ways")
)

// NormalisePath reads the path of a request target, without query. It decodes escapes of unreserved characters and
// removes dot segments; all else is sent as it came. A path with %5C, a backslash or a control character is refused.
func NormalisePath(raw string) (Path, error) {
	if raw == "" {
		raw = "/"
	}
	if raw[0] != '/' {
		return Path{}, errPathStart
	}
	if isPlain(raw) {
		return Path{Send: raw, Views: []string{raw}}, nil
	}
	decoded, err := decodeUnreserved(raw)
	if err != nil {
		return Path{}, err
	}
	again, err := decodeAgain(decoded)
	if err != nil {
		return Path{}, err
	}
	readings := []string{decoded}
	if again != decoded {
		readings = append(readings, again)
	}
	encoded := strings.Contains(again, "%2F")
	params := strings.Contains(viewOf(again), ";")
	empty := strings.Contains(again, "//")
	for i := range readings {
		for _, split := range choices(encoded) {
			for _, cut := range choices(params) {
				if view := viewWith(readings[i], split, cut, false); hasDots(view) {
					if encoded || params || empty || len(readings) > 1 {
						return Path{}, errPathDots
					}
					readings[i] = removeDots(readings[i])
				}
			}
		}
	}
	path := Path{Send: readings[0]}
	for _, reading := range readings {
		for _, split := range choices(encoded) {
			for _, cut := range choices(params) {
				for _, merge := range choices(empty || split || cut) {
					path.add(viewWith(reading, split, cut, merge))
				}
			}
		}
	}
	return path, nil
}

var escapedEscape = regexp.MustCompile("%25([0-9A-Fa-f]{2})")

// decodeAgain is how a server reads a path that decodes it more than once: %2541 is %41 is A.
func decodeAgain(decoded string) (string, error) {
	for {
		next := escapedEscape.ReplaceAllString(decoded, "%$1")
		if next == decoded {
			return decoded, nil
		}
		var err error
		if decoded, err = decodeUnreserved(next); err != nil {
			return "", err
		}
	}
}

func (p *Path) add(view string) {
	for _, known := range p.Views {
		if known == view {
			return
		}
	}
	p.Views = append(p.Views, view)
	p.unclear = p.unclear || !utf8.ValidString(view)
}

func choices(both bool) []bool {
	if both {
		return []bool{false, true}
	}
	return []bool{false}
}

// isPlain tells whether there is just one way to read a path.
func isPlain(raw string) bool {
	for i := 0; i < len(raw); i++ {
		char := raw[i]
		if char == '/' && i+1 < len(raw) && (raw[i+1] == '/' || raw[i+1] == '.') {
			return false
		}
		if char != '/' && !isUnreserved(char) && !strings.ContainsRune("!$&'()*+,=:@", rune(char)) {
			return false
		}
	}
	return true
}

func isUnreserved(char byte) bool {
	return 'a' <= char && char <= 'z' || 'A' <= char && char <= 'Z' || '0' <= char && char <= '9' ||
		char == '-' || char == '.' || char == '_' || char == '~'
}

// decodeUnreserved also writes the other escapes in upper case, and escapes characters that may not stand in a path.
func decodeUnreserved(raw string) (string, error) {
	var out strings.Builder
	for i := 0; i < len(raw); i++ {
		char := raw[i]
		switch {
		case char == '%':
			if i+2 >= len(raw) || !isHex(raw[i+1]) || !isHex(raw[i+2]) {
				return "", errPathEscape
			}
			char = unhex(raw[i+1])<<4 | unhex(raw[i+2])
			i += 2
			switch {
			case char < ' ' || char == 0x7f:
				return "", errPathControl
			case char == '\\':
				return "", errPathSlash
			case isUnreserved(char):
				out.WriteByte(char)
			default:
				writeEscape(&out, char)
			}
		case char <= ' ' || char == 0x7f || char == '#':
			return "", errPathControl
		case char == '\\':
			return "", errPathSlash
		case char >= 0x80 || strings.IndexByte("\"<>^`{|}?[]", char) >= 0:
			writeEscape(&out, char)
		default:
			out.WriteByte(char)
		}
	}
	return out.String(), nil
}

func writeEscape(out *strings.Builder, char byte) {
	const digits = "0123456789ABCDEF"
	out.WriteByte('%')
	out.WriteByte(digits[char>>4])
	out.WriteByte(digits[char&15])
}

// viewOfEscape is the text of an escape in a view. An escaped slash and percent sign stay escaped, so that a view is
// unambiguous.
func viewOfEscape(char byte) string {
	if char == '/' {
		return "%2F"
	}
	if char == '%' {
		return "%25"
	}
	return string([]byte{char})
}

func viewOf(decoded string) string {
	if !strings.Contains(decoded, "%") {
		return decoded
	}
	var out strings.Builder
	for i := 0; i < len(decoded); i++ {
		if decoded[i] == '%' {
			out.WriteString(viewOfEscape(unhex(decoded[i+1])<<4 | unhex(decoded[i+2])))
			i += 2
		} else {
			out.WriteByte(decoded[i])
		}
	}
	return out.String()
}

func viewWith(decoded string, split, cut, merge bool) string {
	view := viewOf(decoded)
	if split {
		view = strings.ReplaceAll(view, "%2F", "/")
	}
	if cut {
		segments := strings.Split(view, "/")
		for i, segment := range segments {
			segments[i], _, _ = strings.Cut(segment, ";")
		}
		view = strings.Join(segments, "/")
	}
	for merge && strings.Contains(view, "//") {
		view = strings.ReplaceAll(view, "//", "/")
	}
	return view
}

func hasDots(view string) bool {
	for segment := range strings.SplitSeq(view, "/") {
		if segment == "." || segment == ".." {
			return true
		}
	}
	return false
}

// removeDots is RFC 3986, 5.2.4. The path has no empty segment, but perhaps the last one.
func removeDots(path string) string {
	var kept []string
	segments := strings.Split(path, "/")[1:]
	for i, segment := range segments {
		last := i == len(segments)-1
		switch segment {
		case ".", "..":
			if segment == ".." && len(kept) > 0 {
				kept = kept[:len(kept)-1]
			}
			if last {
				kept = append(kept, "")
			}
		default:
			kept = append(kept, segment)
		}
	}
	return "/" + strings.Join(kept, "/")
}
