package compressio

import (
	"bytes"
	"io"
	"testing"
)

type buffer struct{ bytes.Buffer }

func (*buffer) Close() error { return nil }

func TestSingleBytesAreThoseThatWereWritten(t *testing.T) {
	for name, key := range map[string][]byte{"without a key": nil, "with a key": []byte("key")} {
		var file buffer
		w := NewSimpleWriter(&file, key, 4)
		if _, err := w.Write([]byte("abcdef")); err != nil {
			t.Fatal(err)
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		r := NewSimpleReader(&file, key)
		if b, err := r.ReadByte(); b != 'a' || err != nil {
			t.Errorf("%s: %q, %v", name, b, err)
		}
		var two [2]byte
		if _, err := io.ReadFull(r, two[:]); string(two[:]) != "bc" || err != nil {
			t.Errorf("%s: %q, %v", name, two, err)
		}
		for _, want := range []byte("def") {
			if b, err := r.ReadByte(); b != want || err != nil {
				t.Errorf("%s: %q, %v", name, b, err)
			}
		}
		if _, err := r.ReadByte(); err != io.EOF {
			t.Errorf("%s: at the end %v", name, err)
		}
	}
}
