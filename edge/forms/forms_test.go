package forms

import (
	"bytes"
	"encoding/base64"
	"testing"
)

func FuzzFinder(f *testing.F) {
	f.Add([]byte("canary-value"), []byte("before"), []byte("after"), 3, 0)
	f.Fuzz(func(t *testing.T, value, before, after []byte, size, form int) {
		if len(value) < 8 || len(value) > 200 || len(before)+len(after) > 5000 || size < 1 || form < 0 {
			return
		}
		text := append(append(bytes.Clone(before), value...), after...)
		switch form % 3 {
		case 1:
			text = []byte(base64.StdEncoding.EncodeToString(text))
		case 2:
			text = []byte(base64.RawURLEncoding.EncodeToString(text))
		}
		finder := NewFinder([][]byte{value})
		if !finder.In(string(text)) {
			t.Errorf("%q is not found in %q", value, text)
		}
		found := false
		for rest := text; len(rest) > 0; {
			count := min(size, len(rest))
			found = found || finder.Next(rest[:count])
			rest = rest[count:]
		}
		if !found {
			t.Errorf("%q is not found in pieces of %d of %q", value, size, text)
		}
	})
}

func TestWhatIsNotThereIsNotFound(t *testing.T) {
	finder := NewFinder([][]byte{[]byte("AKIACANARY0123456789")})
	if finder.In("AKIACANARY012345678") || finder.Next([]byte("AKIACANARY")) || finder.Next([]byte("0123456780")) {
		t.Error("it was found")
	}
	if NewFinder(nil).Any() || !finder.Any() {
		t.Error("it does not know whether it looks for something")
	}
}
