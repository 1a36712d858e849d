package splice

import (
	"bytes"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"atoll/policy"
)

// byLine passes lines that begin with "pass", and has those that begin with "inspect" inspected. Four bytes tell the rest.
func byLine(first []byte) Look {
	line, _, isWhole := strings.Cut(string(first), "\n")
	switch {
	case strings.HasPrefix(line, "tls"):
		if len(first) < 100 {
			return Look{Wanted: 100}
		}
		return Look{Passage: policy.PassOn}
	case !isWhole:
		return Look{Wanted: len(first) + 1, SendOn: true}
	case strings.HasPrefix(line, "pass"):
		return Look{Passage: policy.PassOn}
	case strings.HasPrefix(line, "inspect"):
		return Look{Passage: policy.LookInto}
	}
	return Look{Passage: policy.Refuse}
}

func gated(t *testing.T) *joined {
	t.Helper()
	return join(t, Checks{Gate: &Gate{Read: byLine}})
}

func sendUrgent(t *testing.T, at *net.TCPConn) {
	t.Helper()
	raw, err := at.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	var failure error
	raw.Control(func(fd uintptr) { failure = unix.Sendto(int(fd), []byte("!"), unix.MSG_OOB, nil) })
	if failure != nil {
		t.Fatal(failure)
	}
}

func TestWhatMayPassGoesOnWhole(t *testing.T) {
	j := gated(t)
	j.Release()
	say(t, j.guest, "pass it\nand more")
	hear(t, j.server, "pass it\nand more")
	say(t, j.server, "answer")
	hear(t, j.guest, "answer")
}

func TestAServerThatSpeaksFirstIsHeardBeforeTheGateOpens(t *testing.T) {
	j := gated(t)
	j.Release()
	say(t, j.server, "220 ready")
	hear(t, j.guest, "220 ready")
	say(t, j.guest, "pass\n")
	hear(t, j.server, "pass\n")
}

func TestWhatIsRefusedReachesNobody(t *testing.T) {
	j := gated(t)
	j.Release()
	say(t, j.guest, "other words\n")
	if outcome := j.ends(t); outcome != Refused {
		t.Errorf("the outcome is %d", outcome)
	}
	if heard, _ := io.ReadAll(j.server); len(heard) > 0 {
		t.Errorf("the server heard %q", heard)
	}
	if !isReset(t, j.guest) {
		t.Error("the guest is not reset")
	}
}

func TestWhatIsToBeInspectedComesBackUnread(t *testing.T) {
	j := gated(t)
	j.Release()
	say(t, j.guest, "inspect it\nand more")
	if outcome := j.ends(t); outcome != Inspected || len(j.Sent()) > 0 {
		t.Fatalf("the outcome is %d, and %q went on", outcome, j.Sent())
	}
	hear(t, j.Splice.guest, "inspect it\nand more")
	if heard, _ := io.ReadAll(j.server); len(heard) > 0 {
		t.Errorf("the server heard %q", heard)
	}
	say(t, j.Splice.guest, "answer")
	hear(t, j.guest, "answer")
	j.Splice.guest.Close()
}

func TestAGuestThatHasHeardTheServerIsInspectedNoMore(t *testing.T) {
	j := gated(t)
	j.Release()
	say(t, j.server, "220 ready")
	hear(t, j.guest, "220 ready")
	say(t, j.guest, "inspect\n")
	if outcome := j.ends(t); outcome != Refused {
		t.Errorf("the outcome is %d", outcome)
	}
	if !isReset(t, j.guest) {
		t.Error("the guest is not reset")
	}
}

func TestALineWithoutItsEndGoesOnAfterAMoment(t *testing.T) {
	j := gated(t)
	j.Release()
	say(t, j.guest, "inspe")
	hear(t, j.server, "inspe")
	say(t, j.guest, "ct it")
	hear(t, j.server, "ct it")
	say(t, j.guest, "\nand more")
	if outcome := j.ends(t); outcome != Inspected || string(j.Sent()) != "inspect it" {
		t.Fatalf("the outcome is %d, and %q went on", outcome, j.Sent())
	}
	hear(t, j.Splice.guest, "\nand more")
	j.Splice.guest.Close()
}

func TestFirstBytesInPiecesAreWaitedFor(t *testing.T) {
	j := gated(t)
	j.Release()
	words := "tls" + strings.Repeat("x", 100)
	for _, char := range []byte(words[:99]) {
		j.guest.Write([]byte{char})
	}
	hearNothing(t, j.server)
	say(t, j.guest, words[99:])
	hear(t, j.server, words)
}

func TestAGuestThatEndsWithinItsFirstBytesIsRefused(t *testing.T) {
	j := gated(t)
	j.Release()
	say(t, j.guest, "tls")
	j.guest.CloseWrite()
	if outcome := j.ends(t); outcome != Refused {
		t.Errorf("the outcome is %d", outcome)
	}
}

func TestAGuestThatSaysNothingStillReceives(t *testing.T) {
	j := gated(t)
	j.Release()
	j.guest.CloseWrite()
	if heard, err := io.ReadAll(j.server); len(heard) > 0 || err != nil {
		t.Fatal(heard, err)
	}
	say(t, j.server, "answer")
	hear(t, j.guest, "answer")
}

func TestAGateIsHeldAsWell(t *testing.T) {
	j := gated(t)
	j.Release()
	for range 10 {
		j.Hold()
		j.Release()
	}
	j.Hold()
	say(t, j.guest, "pass\n")
	if !j.OwesRemote() {
		t.Error("the words wait here")
	}
	hearNothing(t, j.server)
	j.Release()
	hear(t, j.server, "pass\n")
}

func TestALineThatIsHeldGoesOnAfterItsRelease(t *testing.T) {
	j := gated(t)
	j.Release()
	say(t, j.guest, "par")
	time.Sleep(patience / 2)
	j.Hold()
	time.Sleep(patience)
	hearNothing(t, j.server)
	j.Release()
	hear(t, j.server, "par")
	say(t, j.guest, "t\n")
	if outcome := j.ends(t); outcome != Refused {
		t.Errorf("the outcome is %d", outcome)
	}
}

func BenchmarkMegabytes(b *testing.B) {
	piece := bytes.Repeat([]byte("x"), 1<<20)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	defer listener.Close()
	ends := make([]*net.TCPConn, 4)
	for i := 0; i < 4; i += 2 {
		dialled, err := net.Dial("tcp", listener.Addr().String())
		if err != nil {
			b.Fatal(err)
		}
		accepted, err := listener.Accept()
		if err != nil {
			b.Fatal(err)
		}
		ends[i], ends[i+1] = dialled.(*net.TCPConn), accepted.(*net.TCPConn)
	}
	made, err := New(ends[1], ends[3], NewRoom(RoomBytes), Checks{})
	if err != nil {
		b.Fatal(err)
	}
	go made.Run()
	made.Release()
	b.SetBytes(1 << 20)
	b.ResetTimer()
	go func() {
		for range b.N {
			ends[0].Write(piece)
		}
		ends[0].CloseWrite()
	}()
	io.Copy(io.Discard, ends[2])
}
