package splice

import (
	"bytes"
	"crypto/rand"
	"io"
	"net"
	"testing"
	"time"
)

const waitMost = 20 * time.Second

// joined is a splice between a guest and a server, with the far ends that they have.
type joined struct {
	*Splice
	guest, server *net.TCPConn
	outcome       chan Outcome
}

func join(t *testing.T, checks Checks) *joined {
	t.Helper()
	guest, ours := pair(t)
	server, theirs := pair(t)
	for _, end := range []*net.TCPConn{ours, theirs} {
		if err := end.SetLinger(0); err != nil {
			t.Fatal(err)
		}
	}
	made, err := New(ours, theirs, NewRoom(RoomBytes), checks)
	if err != nil {
		t.Fatal(err)
	}
	all := &joined{Splice: made, guest: guest, server: server, outcome: make(chan Outcome, 1)}
	go func() { all.outcome <- made.Run() }()
	t.Cleanup(func() {
		made.Reset()
		guest.Close()
		server.Close()
	})
	return all
}

func pair(t *testing.T) (client, server *net.TCPConn) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	dialled, err := net.Dial("tcp", listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	accepted, err := listener.Accept()
	if err != nil {
		t.Fatal(err)
	}
	deadline := time.Now().Add(waitMost)
	dialled.SetDeadline(deadline)
	return dialled.(*net.TCPConn), accepted.(*net.TCPConn)
}

func (j *joined) ends(t *testing.T) Outcome {
	t.Helper()
	select {
	case outcome := <-j.outcome:
		return outcome
	case <-time.After(waitMost):
		t.Fatal("the splice does not end")
		return Ended
	}
}

func say(t *testing.T, from io.Writer, text string) {
	t.Helper()
	if _, err := io.WriteString(from, text); err != nil {
		t.Fatal(err)
	}
}

func hear(t *testing.T, at io.Reader, text string) {
	t.Helper()
	heard := make([]byte, len(text))
	if _, err := io.ReadFull(at, heard); err != nil || string(heard) != text {
		t.Fatalf("heard %q, %v; it was %q that was said", heard, err, text)
	}
}

func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	for end := time.Now().Add(waitMost); !is(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("never so: " + what)
		}
	}
}

func hearNothing(t *testing.T, at *net.TCPConn) {
	t.Helper()
	at.SetReadDeadline(time.Now().Add(50 * time.Millisecond))
	if count, err := at.Read(make([]byte, 1)); count > 0 || err == io.EOF {
		t.Fatalf("heard %d bytes, %v", count, err)
	}
	at.SetReadDeadline(time.Now().Add(waitMost))
}

func isReset(t *testing.T, at *net.TCPConn) bool {
	t.Helper()
	_, err := io.Copy(io.Discard, at)
	return err != nil
}

func TestMegabytesComeThroughAsTheyWentBothWays(t *testing.T) {
	j := join(t, Checks{})
	j.Release()
	sent := make([]byte, 48<<20)
	rand.Read(sent)
	go func() {
		io.Copy(j.server, j.server) // echoes
		j.server.CloseWrite()
	}()
	go func() {
		j.guest.Write(sent)
		j.guest.CloseWrite()
	}()
	got, err := io.ReadAll(j.guest)
	if err != nil || !bytes.Equal(got, sent) {
		t.Fatalf("%d of %d bytes came back as they went: %v", len(got), len(sent), err)
	}
	if outcome := j.ends(t); outcome != Ended {
		t.Errorf("the outcome is %d", outcome)
	}
}

func TestWhoHasFinishedSendingStillReceives(t *testing.T) {
	j := join(t, Checks{})
	j.Release()
	say(t, j.guest, "question")
	j.guest.CloseWrite()
	heard, err := io.ReadAll(j.server)
	if err != nil || string(heard) != "question" {
		t.Fatal(string(heard), err)
	}
	say(t, j.server, "answer")
	hear(t, j.guest, "answer")
	j.server.CloseWrite()
	if rest, err := io.ReadAll(j.guest); len(rest) > 0 || err != nil {
		t.Fatal(rest, err)
	}
	if outcome := j.ends(t); outcome != Ended {
		t.Errorf("the outcome is %d", outcome)
	}
}

func TestAResetOfOneSideReachesTheOther(t *testing.T) {
	for name, isGuest := range map[string]bool{"guest": true, "server": false} {
		t.Run(name, func(t *testing.T) {
			j := join(t, Checks{})
			j.Release()
			say(t, j.guest, "a")
			hear(t, j.server, "a")
			resets, hears := j.server, j.guest
			if isGuest {
				resets, hears = j.guest, j.server
			}
			resets.SetLinger(0)
			resets.Close()
			if !isReset(t, hears) {
				t.Error("it ended as if all had been said")
			}
			if outcome := j.ends(t); outcome != Reset {
				t.Errorf("the outcome is %d", outcome)
			}
		})
	}
}

func TestHeldBytesWaitAndThenArrive(t *testing.T) {
	j := join(t, Checks{})
	j.Release()
	say(t, j.guest, "a")
	hear(t, j.server, "a")
	for range 20 {
		j.Hold()
		say(t, j.guest, "from the guest")
		say(t, j.server, "from the server")
		hearNothing(t, j.server)
		hearNothing(t, j.guest)
		j.Release()
		hear(t, j.server, "from the guest")
		hear(t, j.guest, "from the server")
	}
}

func TestHoldAndReleaseLoseNothingOfAStream(t *testing.T) {
	j := join(t, Checks{})
	sent := make([]byte, 16<<20)
	rand.Read(sent)
	go func() {
		j.server.Write(sent)
		j.server.CloseWrite()
	}()
	stop := make(chan struct{})
	go func() {
		for {
			select {
			case <-stop:
				return
			default:
				j.Release()
				time.Sleep(time.Millisecond)
				j.Hold()
			}
		}
	}()
	got := make([]byte, len(sent))
	_, err := io.ReadFull(j.guest, got)
	close(stop)
	if err != nil || !bytes.Equal(got, sent) {
		t.Fatal("the bytes differ", err)
	}
}

func TestAnEndThatIsHeldIsToldAtItsRelease(t *testing.T) {
	j := join(t, Checks{})
	j.Release()
	say(t, j.server, "a")
	hear(t, j.guest, "a")
	j.Hold()
	j.server.SetLinger(0)
	j.server.Close()
	eventually(t, "the end outside has failed", j.remote.hasFailed)
	hearNothing(t, j.guest)
	if !j.IsOver() || j.GuestIsGone() || j.OwesRemote() {
		t.Error("a held connection that its server has reset is over, and its guest is there")
	}
	j.Release()
	if !isReset(t, j.guest) {
		t.Error("the guest was told of an end, and not of a reset")
	}
}

func TestWhatAGuestSaidLastGetsOutOfAHeldSplice(t *testing.T) {
	j := join(t, Checks{})
	j.Release()
	j.Hold()
	if j.OwesRemote() {
		t.Error("nothing was said")
	}
	say(t, j.guest, "the last word")
	eventually(t, "the word has come", func() bool { return j.out.source.unread() > 0 })
	if j.OwesRemote() {
		t.Error("the word has not got out")
	}
	hear(t, j.server, "the last word")
	j.guest.CloseWrite()
	time.Sleep(20 * time.Millisecond)
	if j.OwesRemote() {
		t.Error("an end is owed")
	}
	hearNothing(t, j.server)
	j.Release()
	if rest, err := io.ReadAll(j.server); len(rest) > 0 || err != nil {
		t.Error(rest, err)
	}
}

func TestATargetThatTakesNothingHoldsAPieceAndIsOwedIt(t *testing.T) {
	j := join(t, Checks{})
	j.Release()
	j.server.SetWriteDeadline(time.Now().Add(2 * time.Second))
	io.Copy(j.server, endless{}) // until nobody takes more
	eventually(t, "a piece is held", j.in.isMoving)
	if held := RoomBytes - j.in.room.left.Load(); held <= 0 || held > pieceBytes {
		t.Errorf("%d bytes are counted as held", held)
	}
	j.Hold()
	if !j.OwesGuest(0) || j.IsOver() {
		t.Error("the guest is owed what is held")
	}
	j.Reset()
	j.ends(t)
	if left := j.in.room.left.Load(); left != RoomBytes {
		t.Errorf("%d of %d bytes are left", left, RoomBytes)
	}
}

func TestAGuestThatTakesNothingIsOwedWhatItHasNotAcknowledged(t *testing.T) {
	j := join(t, Checks{})
	j.Release()
	say(t, j.server, "a")
	hear(t, j.guest, "a")
	j.Hold()
	eventually(t, "all is acknowledged", func() bool { return !j.OwesGuest(0) })
	if !j.OwesGuest(60_000) {
		t.Error("it got something within the last minute")
	}
}

type endless struct{}

func (endless) Read(into []byte) (int, error) { return len(into), nil }

func TestManySplicesLeaveNoPipe(t *testing.T) {
	for range 50 {
		j := join(t, Checks{})
		j.Release()
		say(t, j.guest, "a")
		hear(t, j.server, "a")
		j.Reset()
		if outcome := j.ends(t); outcome != Reset {
			t.Fatalf("the outcome is %d", outcome)
		}
	}
	free.mu.Lock()
	defer free.mu.Unlock()
	if len(free.pipes) > pipesKept {
		t.Errorf("%d pipes are kept", len(free.pipes))
	}
}
