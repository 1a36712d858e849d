package change

import (
	"bytes"
	"encoding/json"
	"io"
	"strings"
	"testing"
	"testing/iotest"
)

func FuzzSecretText(f *testing.F) {
	for _, text := range []string{"", "a", `"\`, "\u00e9\U0001f600", "\x00\x1f", "a\nb"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		for _, escapeHTML := range []bool{true, false} {
			var encoded bytes.Buffer
			encoder := json.NewEncoder(&encoded)
			encoder.SetEscapeHTML(escapeHTML)
			if err := encoder.Encode(text); err != nil {
				t.Fatal(err)
			}
			var want string
			var got SecretText
			if err := json.Unmarshal(encoded.Bytes(), &want); err != nil {
				t.Fatal(err)
			}
			if err := json.Unmarshal(encoded.Bytes(), &got); err != nil || string(got) != want {
				t.Fatalf("%s becomes %q, %v", encoded.String(), got, err)
			}
		}
	})
}

func TestSecretTextReadsPairsOfSurrogates(t *testing.T) {
	var got SecretText
	if err := json.Unmarshal([]byte(`"\ud83d\ude00\u00E9\/"`), &got); err != nil || string(got) != "😀é/" {
		t.Errorf("%q, %v", got, err)
	}
	if json.Unmarshal([]byte(`7`), &got) == nil {
		t.Error("a number is no text")
	}
}

func FuzzScrubStream(f *testing.F) {
	f.Add("abcdef", "xxabcabcdefxx", 3)
	f.Add("aaaab", "aaaaaaaab", 1)
	f.Add("\x00000", "\x00000000", 51)
	f.Fuzz(func(t *testing.T, secret, text string, size int) {
		if len(secret) < scrubShortest || len(secret) > 50 || strings.Contains("[secret n]", secret) {
			return
		}
		scrubber := NewScrubber([]Echo{{"n", []byte(secret)}})
		var source io.Reader = strings.NewReader(text)
		if size%2 == 0 {
			source = iotest.OneByteReader(source)
		}
		got, err := io.ReadAll(scrubber.Reader(io.NopCloser(source)))
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(text, secret) && !bytes.Contains(got, []byte("[secret n]")) && string(got) != text {
			t.Errorf("%q became %q without a reason", text, got)
		}
		// What a replacement leaves may join to the secret once more; then it was not an echo.
		if left := strings.ReplaceAll(string(got), "[secret n]", "\x00"); strings.Contains(left, secret) &&
			!strings.ContainsAny(secret, "[]\x00") {
			t.Errorf("%q became %q", text, got)
		}
	})
}
