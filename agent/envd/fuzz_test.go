package envd

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"testing"

	"atoll/agent/fault"
)

func FuzzAStreamOfMessagesEndsOrIsRefused(f *testing.F) {
	f.Add([]byte{})
	f.Add([]byte("\x00\x00\x00\x00\x02{}\x02\x00\x00\x00\x02{}"))
	f.Add([]byte("\x01\x00\x00\x00\x02{}"))
	f.Add([]byte("\x00\xff\xff\xff\xff{}"))
	f.Add([]byte("\x00\x00\x00\x00\x09{\"a\":[[[["))
	f.Fuzz(func(t *testing.T, data []byte) {
		body := bytes.NewReader(data)
		for range len(data) + 1 {
			var message streamInputMessage
			err := receive(body, &message)
			if errors.Is(err, io.EOF) {
				return
			}
			if err != nil {
				if code := fault.Of(err).Code; code != fault.Invalid {
					t.Fatalf("%s: %v", code, err)
				}
				return
			}
		}
		t.Fatal("more messages than bytes")
	})
}

func FuzzMetadataIsBounded(f *testing.F) {
	f.Add("X-Metadata-Color", "blue")
	f.Add("x-metadata-", "\xff")
	f.Add("X-Metadata-A", "b\x00")
	f.Fuzz(func(t *testing.T, name, value string) {
		found, err := metadataOf(http.Header{http.CanonicalHeaderKey(name): {value}})
		if err != nil {
			return
		}
		total := 0
		for key, text := range found {
			total += len(key) + len(text)
		}
		if total > metadataTotalMost {
			t.Fatalf("%d bytes of metadata", total)
		}
	})
}
