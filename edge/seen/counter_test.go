package seen

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func took(c *Counter) (entries []Entry) {
	c.Close()
	for {
		some := c.Take(7)
		if len(some) == 0 {
			return entries
		}
		entries = append(entries, some...)
	}
}

func told(entries []Entry, began time.Time) string {
	var said []string
	for _, each := range entries {
		kept := ""
		if each.Until != 0 {
			kept = fmt.Sprintf("-%.1f", each.Until-seconds(began))
		}
		said = append(said, fmt.Sprintf("%d %s at %.1f%s", each.Count, each.Host, each.At-seconds(began), kept))
	}
	return strings.Join(said, ", ")
}

func expect(t *testing.T, got, want string) {
	t.Helper()
	if got != want {
		t.Errorf("%s, and not %s", got, want)
	}
}

func TestDecisionsThatNobodyTakesAreLinesWithTheirTimes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		c := &Counter{Room: NewRoom()}
		for range 3 {
			c.Note(Entry{Host: "a"})
			c.Note(Entry{Host: "b"})
			time.Sleep(time.Second)
		}
		expect(t, told(took(c), began), "2 a at 0.0-1.0, 2 b at 0.0-1.0, 1 a at 2.0, 1 b at 2.0")
		c.Note(Entry{Host: "a"})
		expect(t, told(took(c), began), "1 a at 3.0")
		expect(t, told(took(c), began), "")
	})
}

func TestWhatIsNotToldIsTakenAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		c := &Counter{Room: NewRoom()}
		for _, host := range []string{"a", "b", "c"} {
			c.Note(Entry{Host: host})
			time.Sleep(moment)
		}
		c.Close()
		some := c.Take(2)
		c.Return(some)
		expect(t, told(took(c), began), "1 a at 0.0-0.0, 1 b at 2.0-2.0, 1 c at 4.0-4.0")
		if used := c.Room.used.Load(); used != 0 || c.bytes != 0 {
			t.Errorf("%d and %d bytes are in use", used, c.bytes)
		}
	})
}

func TestAFloodIsCountedAndItsFirstLinesAreKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &Counter{Room: NewRoom()}
		for second := range 100 {
			for i := range 300 {
				c.Note(Entry{Host: fmt.Sprint(second, "-", i), Action: "deny"})
			}
			time.Sleep(time.Second)
		}
		entries, count, over := took(c), 0, 0
		for _, each := range entries {
			count += each.Count
			if strings.HasPrefix(each.Reason, "more than is kept") {
				over += each.Count
			}
		}
		if count != 100*300 || len(entries) > 200+100+Most || over < count/2 {
			t.Errorf("%d entries for %d decisions, of which %d are only counted", len(entries), count, over)
		}
	})
}

func TestASandboxThatHasFilledItsShareIsFullAndOthersAreNot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		room := RoomOf(shares * 1000)
		one, other := &Counter{Room: room}, &Counter{Room: room}
		for range 4 {
			one.Note(Entry{Host: strings.Repeat("a", 100)})
			time.Sleep(moment)
		}
		if one.IsFull() {
			t.Error("three lines of 300 bytes fill 1000")
		}
		one.Note(Entry{Host: "b"})
		if !one.IsFull() || other.IsFull() {
			t.Errorf("%t and %t", one.IsFull(), other.IsFull())
		}
		one.Refuse(Entry{Action: "deny", Host: "c"})
		entries := took(one)
		last := entries[len(entries)-1]
		if last.Host != "" || !strings.HasPrefix(last.Reason, "refused") || one.IsFull() {
			t.Errorf("the last one is %+v", last)
		}
	})
}

func TestARoomThatIsFullIsFullForAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		room := RoomOf(shares * 100)
		var all []*Counter
		for range shares {
			made := &Counter{Room: room}
			made.Note(Entry{Host: "a"})
			time.Sleep(moment)
			made.Note(Entry{Host: "b"})
			all = append(all, made)
		}
		other := &Counter{Room: room}
		if !other.IsFull() {
			t.Error("there is room")
		}
		for _, each := range all {
			took(each)
		}
		if other.IsFull() || room.used.Load() != 0 {
			t.Errorf("%d bytes are in use", room.used.Load())
		}
	})
}
