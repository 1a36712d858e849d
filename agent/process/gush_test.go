package process

import (
	"strconv"
	"strings"
	"testing"
	"time"

	"atoll/agent/frames"
)

func TestAStrongFlowOfSmallWritesArrivesWholeAndInOrder(t *testing.T) {
	const lines = 400_000
	spec := shell("sleep 600 & seq " + strconv.Itoa(lines) + "; exit 4")
	texts, end := result(t, started(t, spec))
	if end.ExitCode != 4 {
		t.Fatalf("%+v", end)
	}
	got := strings.Fields(texts[frames.Stdout])
	if len(got) != lines {
		t.Fatalf("%d lines of %d", len(got), lines)
	}
	for i, line := range got {
		if line != strconv.Itoa(i+1) {
			t.Fatalf("line %d is %q", i+1, line)
		}
	}
}

func TestAFlowThatBecomesAStrongOneAndWeakAgainIsReadToItsEnd(t *testing.T) {
	spec := shell("seq 200000; read line; echo last $line")
	spec.Stdin = true
	p, f := start(t, spec)
	defer f.Close()
	buffer := make([]byte, frames.MaxPayload)
	text := ""
	for !strings.HasSuffix(text, "\n200000\n") {
		if _, count, _ := f.Take(buffer); count > 0 {
			text += string(buffer[:count])
		} else {
			<-f.Wake
		}
	}
	if err := p.Write(strings.NewReader("word\n")); err != nil {
		t.Fatal(err)
	}
	f.Close()
	texts, _ := result(t, p.Log.Follow(true))
	if !strings.HasSuffix(texts[frames.Stdout], "\n200000\nlast word\n") {
		t.Fatal(texts[frames.Stdout][max(0, len(texts[frames.Stdout])-100):])
	}
}

func TestAFlowIsStrongOnlyWithoutPauses(t *testing.T) {
	weak := flow{bytes: strongBytes, last: time.Now().Add(-time.Hour)}
	if weak.strong(1) {
		t.Fatal("an hour is a pause")
	}
	strong := flow{bytes: strongBytes - 1, last: time.Now().Add(time.Hour)}
	if !strong.strong(1) {
		t.Fatal("there was no pause")
	}
}

func TestAProcessEndsThoughItsChildGoesOnWriting(t *testing.T) {
	spec := shell("yes & yes | head -c 1000000; exit 5")
	f := started(t, spec)
	defer f.Close()
	buffer := make([]byte, frames.MaxPayload)
	for {
		_, count, end := f.Take(buffer)
		if end != nil {
			if end.ExitCode != 5 {
				t.Fatalf("%+v", end)
			}
			return
		}
		if count == 0 {
			<-f.Wake
		}
	}
}
