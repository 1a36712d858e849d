package channel

import (
	"errors"
	"io"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

func pair(t *testing.T) (one, other *Channel) {
	t.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	var ends [2]*Channel
	for i, fd := range fds {
		if ends[i], err = Open(os.NewFile(uintptr(fd), "channel")); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { ends[i].Close() })
	}
	return ends[0], ends[1]
}

func TestDescriptorsComeWithTheirMessageAndStayOpenHere(t *testing.T) {
	one, other := pair(t)
	var sent []*os.File
	for _, text := range []string{"first", "second", "third", "fourth"} {
		file, err := Sealed(text)
		if err != nil {
			t.Fatal(err)
		}
		defer file.Close()
		sent = append(sent, file)
	}
	for range 2 {
		if err := one.Send(message{Op: "link"}, sent...); err != nil {
			t.Fatal(err)
		}
	}
	for range 2 {
		var got message
		files, err := other.Receive(&got)
		if err != nil || got.Op != "link" || len(files) != len(sent) {
			t.Fatalf("%+v with %d descriptors, %v", got, len(files), err)
		}
		for i, want := range []string{"first", "second", "third", "fourth"} {
			var text string
			if err := Content(files[i], &text); err != nil || text != want {
				t.Errorf("descriptor %d has %q, %v", i, text, err)
			}
		}
	}
	if one.Send(message{}, append(sent, sent[0])...) == nil {
		t.Error("five descriptors are sent")
	}
	if one.Send(strings.Repeat("x", messageMost)) == nil {
		t.Error("a message that is too long is sent")
	}
	one.Close()
	if _, err := other.Receive(&message{}); !errors.Is(err, io.EOF) {
		t.Errorf("the end is %v", err)
	}
}

func TestALongContentIsWhatWasWritten(t *testing.T) {
	want := make([]string, 8192)
	for i := range want {
		want[i] = strings.Repeat("n", 253)
	}
	file, err := Sealed(want)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := file.WriteAt([]byte("x"), 0); err == nil {
		t.Error("a sealed content can be changed")
	}
	var got []string
	if err := Content(file, &got); err != nil || len(got) != len(want) || got[8191] != want[8191] {
		t.Errorf("%d names, %v", len(got), err)
	}
}
