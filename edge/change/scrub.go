package change

import (
	"bytes"
	"io"
	"net/http"
	"slices"

	"atoll/edge/forms"
)

// A shorter secret is not looked for: replacing it would damage answers by chance.
const scrubShortest = 4

// Scrubber replaces echoes of secrets by their names. This is best effort, without a guarantee.
type Scrubber struct {
	pairs []pair
	most  int
}

type pair struct{ text, name []byte }

// NewScrubber makes one for the texts that were sent.
func NewScrubber(echoes []Echo) *Scrubber {
	scrubber := &Scrubber{}
	for _, echo := range echoes {
		if len(echo.Text) < scrubShortest {
			continue
		}
		for _, form := range forms.Of(echo.Text) {
			scrubber.pairs = append(scrubber.pairs, pair{form, []byte("[secret " + echo.Name + "]")})
			scrubber.most = max(scrubber.most, len(form))
		}
	}
	slices.SortStableFunc(scrubber.pairs, func(a, b pair) int { return len(b.text) - len(a.text) })
	return scrubber
}

// Bytes returns the text without echoes; the same one when it has none.
func (s *Scrubber) Bytes(text []byte) []byte {
	for _, each := range s.pairs {
		if bytes.Contains(text, each.text) {
			text = bytes.ReplaceAll(text, each.text, each.name)
		}
	}
	return text
}

// sameLength is a scrubber whose names are as long as the secrets that they replace, for bodies with an announced length.
func (s *Scrubber) sameLength() *Scrubber {
	same := &Scrubber{most: s.most}
	for _, each := range s.pairs {
		name := append(bytes.Clone(each.name), bytes.Repeat([]byte("*"), len(each.text))...)
		same.pairs = append(same.pairs, pair{each.text, name[:len(each.text)]})
	}
	return same
}

// Header scrubs all values in place.
func (s *Scrubber) Header(header http.Header) {
	for _, values := range header {
		for i, value := range values {
			if clean := s.Bytes([]byte(value)); string(clean) != value {
				values[i] = string(clean)
			}
		}
	}
}

// held is how many bytes at the end may be the beginning of an echo.
func (s *Scrubber) held(text []byte) int {
	for size := min(s.most-1, len(text)); size > 0; size-- {
		tail := text[len(text)-size:]
		for _, each := range s.pairs {
			if len(each.text) > size && bytes.HasPrefix(each.text, tail) {
				return size
			}
		}
	}
	return 0
}

// Reader scrubs a stream. It holds back only the possible beginning of an echo.
func (s *Scrubber) Reader(inner io.ReadCloser) io.ReadCloser {
	return &scrubbed{inner: inner, scrubber: s}
}

type scrubbed struct {
	inner    io.ReadCloser
	scrubber *Scrubber
	raw      []byte // its end may be the beginning of an echo
	ready    []byte
	err      error
}

func (r *scrubbed) Read(into []byte) (int, error) {
	for len(r.ready) == 0 {
		if r.err != nil {
			return 0, r.err
		}
		piece := make([]byte, 16<<10)
		count, err := r.inner.Read(piece)
		r.raw, r.err = append(r.raw, piece[:count]...), err
		r.raw = r.scrubber.Bytes(r.raw)
		held := 0
		if err == nil {
			held = r.scrubber.held(r.raw)
		}
		r.ready = r.raw[:len(r.raw)-held]
		r.raw = bytes.Clone(r.raw[len(r.raw)-held:])
	}
	count := copy(into, r.ready)
	r.ready = r.ready[count:]
	return count, nil
}

func (r *scrubbed) Close() error { return r.inner.Close() }
