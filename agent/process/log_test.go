package process

import (
	"bytes"
	"strings"
	"testing"

	"atoll/agent/frames"
)

func drain(f *Follower) (text string, end *End) {
	buffer := make([]byte, frames.MaxPayload)
	for {
		kind, count, end := f.Take(buffer)
		if count == 0 {
			return text, end
		}
		text += string(kind) + ":" + string(buffer[:count]) + " "
	}
}

func TestAFollowerGetsOutputInOrderAndThenTheEnd(t *testing.T) {
	l := newLog(keptBytes)
	f := l.Follow(true)
	l.Append(frames.Stdout, []byte("a"))
	l.Append(frames.Stdout, []byte("b"))
	l.Append(frames.Stderr, []byte("c"))
	l.Append(frames.Stdout, []byte("d"))
	if text, end := drain(f); text != "o:ab e:c o:d " || end != nil {
		t.Fatalf("%q %v", text, end)
	}
	l.Finish(End{ExitCode: 3})
	if _, end := drain(f); end == nil || end.ExitCode != 3 {
		t.Fatal(end)
	}
}

func TestOnlyTheNewestMebibyteIsKept(t *testing.T) {
	l := newLog(keptBytes)
	for i := range 64 {
		l.Append(frames.Stdout, bytes.Repeat([]byte{byte(i)}, frames.MaxPayload))
	}
	if size := l.size(); size > keptBytes {
		t.Fatalf("%d bytes are kept", size)
	}
	f := l.Follow(true)
	buffer := make([]byte, frames.MaxPayload)
	_, count, _ := f.Take(buffer)
	if count != frames.MaxPayload || buffer[0] < 47 || buffer[0] > 50 {
		t.Fatalf("%d bytes of %d", count, buffer[0])
	}
}

func TestManyTinyOutputsOfTwoKindsStayBounded(t *testing.T) {
	l := newLog(keptBytes)
	for range 100_000 {
		l.Append(frames.Stdout, []byte("a"))
		l.Append(frames.Stderr, []byte("b"))
	}
	if len(l.blocks) > keptBytes/blockCost {
		t.Fatalf("%d blocks", len(l.blocks))
	}
}

func TestOutputWaitsForASlowFollowerUntilThatLeaves(t *testing.T) {
	l := newLog(keptBytes)
	f := l.Follow(true)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for range 64 {
			l.Append(frames.Stdout, make([]byte, frames.MaxPayload))
		}
	}()
	total := 0
	buffer := make([]byte, frames.MaxPayload)
	for total < 32*frames.MaxPayload {
		_, count, _ := f.Take(buffer)
		total += count
		if count == 0 {
			<-f.Wake
		}
	}
	if l.size() > 2*keptBytes {
		t.Fatalf("%d bytes are held", l.size())
	}
	f.Close()
	<-done
}

func TestALateFollowerCanLeaveOutWhatWas(t *testing.T) {
	l := newLog(keptBytes)
	l.Append(frames.Stdout, []byte(strings.Repeat("x", 100)))
	f := l.Follow(false)
	l.Append(frames.Stdout, []byte("new"))
	if text, _ := drain(f); text != "o:new " {
		t.Fatal(text)
	}
}

func TestAFollowerThatComesTooLateIsToldSo(t *testing.T) {
	l := newLog(keptBytes)
	if l.Follow(true).Missed {
		t.Fatal("there was nothing yet")
	}
	l = newLog(keptBytes)
	l.Append(frames.Stdout, []byte("first"))
	if l.Follow(true).Missed {
		t.Fatal("all of it is kept")
	}
	l = newLog(keptBytes)
	for range 2 * keptBytes / frames.MaxPayload {
		l.Append(frames.Stdout, make([]byte, frames.MaxPayload))
	}
	if !l.Follow(true).Missed || l.Follow(false).Missed {
		t.Fatal("the first bytes are gone, which only matters to who wants them")
	}
	l.forget()
	if !l.Follow(true).Missed {
		t.Fatal("all of them are gone")
	}
}

func TestAFollowerIsToldHowMuchOfTheOutputIsFromBefore(t *testing.T) {
	l := newLog(keptBytes)
	l.Append(frames.Stdout, []byte("first"))
	f := l.Follow(true)
	l.Append(frames.Stdout, []byte("later"))
	if text, _ := drain(f); f.Kept != 5 || text != "o:firstlater " {
		t.Fatal(f.Kept, text)
	}
	f.Close()
	if l.Follow(false).Kept != 0 || newLog(keptBytes).Follow(true).Kept != 0 {
		t.Fatal("there is nothing from before, or nobody wants it")
	}
	l = newLog(keptBytes)
	for range 2 * keptBytes / frames.MaxPayload {
		l.Append(frames.Stdout, make([]byte, frames.MaxPayload))
	}
	if kept := l.Follow(true).Kept; kept > keptBytes || kept < keptBytes/2 {
		t.Fatal(kept)
	}
}

func TestALogThatHurriesWaitsForNobody(t *testing.T) {
	l := NewLog()
	f := l.Follow(true)
	defer f.Close()
	for range 4 * keptBytes / frames.MaxPayload {
		l.Append(frames.Stdout, make([]byte, frames.MaxPayload))
	}
	if size := l.size(); size > keptBytes {
		t.Fatalf("it keeps %d bytes", size)
	}
	buffer := make([]byte, frames.MaxPayload)
	if _, count, _ := f.Take(buffer); count == 0 || !f.Missed {
		t.Fatalf("%d bytes, missed: %v", count, f.Missed)
	}
}

func TestWhoResumesGetsOnceWhatTheOneThatLeftHadNotRead(t *testing.T) {
	l := newLog(keptBytes)
	first := l.Follow(true)
	l.Append(frames.Stdout, []byte("read,"))
	drain(first)
	first.Leave()
	l.Append(frames.Stdout, []byte("missed,"))
	second := l.Resume()
	l.Append(frames.Stdout, []byte("live"))
	if text, _ := drain(second); text != "o:missed,live " {
		t.Fatal(text)
	}
	if text, _ := drain(l.Resume()); text != "" {
		t.Fatal("it was read already: ", text)
	}
	second.Return(4)
	second.Leave()
	if text, _ := drain(l.Resume()); text != "o:live " {
		t.Fatal("nobody got it: ", text)
	}
}

func TestWhoResumesAfterNobodyGetsWhatComesFromNowOn(t *testing.T) {
	l := newLog(keptBytes)
	l.Append(frames.Stdout, []byte("old"))
	f := l.Resume()
	l.Append(frames.Stdout, []byte("new"))
	if text, _ := drain(f); text != "o:new " {
		t.Fatal(text)
	}
}
