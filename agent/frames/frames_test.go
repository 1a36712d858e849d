package frames

import (
	"net/http/httptest"
	"testing"
)

func TestAFrameIsItsTypeItsLengthAndItsPayload(t *testing.T) {
	answer := httptest.NewRecorder()
	out := NewWriter(answer)
	buffer := Take()
	copy(buffer.Payload(), "hey")
	if err := out.Send(Stdout, buffer, 3); err != nil {
		t.Fatal(err)
	}
	if err := out.SendJSON(Start, map[string]int{"pid": 7}); err != nil {
		t.Fatal(err)
	}
	if err := out.SendAlive(); err != nil {
		t.Fatal(err)
	}
	wanted := "o\x00\x00\x00\x03hey" + "s\x00\x00\x00\x09{\"pid\":7}" + "k\x00\x00\x00\x00"
	if got := answer.Body.String(); got != wanted {
		t.Fatalf("got %q, wanted %q", got, wanted)
	}
	if kind := answer.Header().Get("Content-Type"); kind != MediaType {
		t.Fatalf("content type %q", kind)
	}
}
