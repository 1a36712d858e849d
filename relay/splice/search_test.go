package splice

import (
	"bytes"
	"crypto/rand"
	"io"
	"strconv"
	"testing"
	"time"

	"atoll/edge/forms"
)

const bait = "AKIACANARY0123456789"

func baited() Finder { return forms.NewFinder([][]byte{[]byte(bait)}) }

func searched(t *testing.T) *joined {
	t.Helper()
	j := join(t, Checks{Canaries: baited()})
	j.Release()
	return j
}

func TestWhatIsFoundDoesNotLeave(t *testing.T) {
	j := searched(t)
	say(t, j.server, "220 ready")
	hear(t, j.guest, "220 ready")
	say(t, j.guest, "HELO me")
	hear(t, j.server, "HELO me")
	say(t, j.server, "250 go on")
	hear(t, j.guest, "250 go on")
	say(t, j.guest, "DATA "+bait)
	if outcome := j.ends(t); outcome != Betrayed {
		t.Errorf("the outcome is %d", outcome)
	}
	if heard, _ := io.ReadAll(j.server); len(heard) > 0 {
		t.Errorf("the server heard %q", heard)
	}
	if !isReset(t, j.guest) {
		t.Error("the guest was not told")
	}
}

func TestWhatComesInPiecesIsFoundBeforeItsEnd(t *testing.T) {
	j := searched(t)
	for i := range len(bait) - 1 {
		say(t, j.guest, bait[i:i+1])
		hear(t, j.server, bait[i:i+1])
	}
	say(t, j.guest, bait[len(bait)-1:])
	if outcome := j.ends(t); outcome != Betrayed {
		t.Errorf("the outcome is %d", outcome)
	}
	if heard, _ := io.ReadAll(j.server); len(heard) > 0 {
		t.Errorf("the server heard %q", heard)
	}
}

func TestOnlyTheBeginningIsSearched(t *testing.T) {
	j := searched(t)
	long := bytes.Repeat([]byte("x"), SearchedMost-1)
	go j.guest.Write(append(long, bait...))
	heard := make([]byte, len(long)+len(bait))
	if _, err := io.ReadFull(j.server, heard); err != nil || !bytes.HasSuffix(heard, []byte(bait)) {
		t.Fatalf("%v: %q", err, heard[len(long):])
	}
	say(t, j.server, bait)
	hear(t, j.guest, bait)
	j.guest.CloseWrite()
	j.server.CloseWrite()
	if outcome := j.ends(t); outcome != Ended {
		t.Errorf("the outcome is %d", outcome)
	}
}

func TestWhatIsFoundAtTheEndOfTheBeginningDoesNotLeave(t *testing.T) {
	j := searched(t)
	text := append(bytes.Repeat([]byte("x"), SearchedMost-len(bait)), bait...)
	go j.guest.Write(text)
	heard, _ := io.ReadAll(j.server)
	if outcome := j.ends(t); outcome != Betrayed || len(heard) >= len(text) {
		t.Errorf("the outcome is %d, and %d bytes have left", outcome, len(heard))
	}
}

func TestALineThatIsSentOnWithoutItsEndIsSearched(t *testing.T) {
	j := join(t, Checks{Gate: &Gate{Read: byLine}, Canaries: baited()})
	j.Release()
	say(t, j.guest, "pass "+bait)
	if outcome := j.ends(t); outcome != Betrayed {
		t.Errorf("the outcome is %d", outcome)
	}
	if heard, _ := io.ReadAll(j.server); len(heard) > 0 {
		t.Errorf("the server heard %q", heard)
	}
}

func TestWhatIsSentOnAtFirstIsSearchedTogetherWithTheRest(t *testing.T) {
	j := join(t, Checks{Gate: &Gate{Read: byLine}, Canaries: baited()})
	j.Release()
	say(t, j.guest, "pass "+bait[:9])
	hear(t, j.server, "pass "+bait[:9])
	say(t, j.guest, bait[9:]+"\n")
	if outcome := j.ends(t); outcome != Betrayed {
		t.Errorf("the outcome is %d", outcome)
	}
}

func TestAGuestThatIsHeldSendsNothingThatIsFound(t *testing.T) {
	j := searched(t)
	j.Hold()
	say(t, j.guest, bait)
	done := make(chan struct{})
	go func() {
		j.OwesRemote()
		close(done)
	}()
	select {
	case <-done:
	case <-time.After(waitMost):
		t.Fatal("whoever asks what is owed waits for ever")
	}
	hearNothing(t, j.server)
	j.Release()
	if outcome := j.ends(t); outcome != Betrayed {
		t.Errorf("the outcome is %d", outcome)
	}
}

func BenchmarkSearch(b *testing.B) {
	for _, count := range []int{1, 10} {
		b.Run(strconv.Itoa(count), func(b *testing.B) {
			values := make([][]byte, count)
			for i := range values {
				values[i] = []byte(bait + strconv.Itoa(i))
			}
			all, piece := forms.NewFinder(values), make([]byte, searchedAtOnce)
			rand.Read(piece)
			b.SetBytes(SearchedMost)
			for b.Loop() {
				finder := all.Fresh()
				for range SearchedMost / searchedAtOnce {
					finder.Next(piece)
				}
			}
		})
	}
}
