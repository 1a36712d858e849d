package serve

import (
	"context"
	"fmt"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"atoll/channel"
	"atoll/edge/control"
)

func TestThereIsABoundOnRequestsThatAreHeld(t *testing.T) {
	t.Parallel()
	w := askWorld(t, asking)
	var came []<-chan reply
	client := w.client()
	for i := range asksMost {
		came = append(came, later(t, client, "GET", fmt.Sprint("https://a.x/", i), ""))
	}
	w.counted(asksMost)
	got := do(t, client, "GET", "https://a.x/more", "")
	expect(t, got.StatusCode, 429)
	contains(t, got.text, `"error":"too_many_asks"`)
	expect(t, got.Header.Get("Retry-After"), "10")
	for _, each := range w.asks(asksMost) {
		w.approves(each)
	}
	for _, each := range came {
		expect(t, (<-each).StatusCode, 200)
	}
	w.counted(0)
}

// It runs beside no other test: those would wait for a processor so long that their connections are cut.
func TestAFloodOfAsksStaysBounded(t *testing.T) {
	w := ownerless(t)
	w.policy(asking)
	client := w.plainH2()
	const flood = 500
	var refused atomic.Int32
	var going sync.WaitGroup
	for i := range flood {
		came := later(t, client, "POST", fmt.Sprint("http://a.x/", i%200), strings.Repeat("x", 1000))
		going.Go(func() {
			if got := <-came; got.StatusCode == 429 {
				refused.Add(1)
			}
		})
	}
	eventually(t, "all others are refused", func() bool { return refused.Load() == flood-asksMost })
	w.counted(asksMost)
	leave := w.own()
	w.policy(asking) // it waits for its rules, and is not cut before they come
	w.sendRules(0)
	eventually(t, "all are told", func() bool {
		w.mu.Lock()
		defer w.mu.Unlock()
		sum := 0
		for _, each := range w.asked.asks {
			sum += each.Count
		}
		return sum == asksMost
	})
	must(t, w.edge.Handle(&control.Message{Op: "forget", Sandbox: "s"}, nil))
	w.mu.Lock()
	count := len(w.asked.asks)
	w.mu.Unlock()
	for _, each := range w.ends(count) {
		contains(t, each, "gone 0 ")
	}
	leave()
	going.Wait()
}

func TestGrantsAreBoundedAndEnd(t *testing.T) {
	t.Parallel()
	var all grants
	began := time.Now()
	for i := range grantsMost + 10 {
		all.add(granted{port: i}, began, time.Duration(i+1)*time.Minute)
	}
	expect(t, len(all), grantsMost)
	for port, passes := range map[int]bool{0: false, 9: false, 10: true, grantsMost + 9: true} {
		if (all.reason(granted{port: port}, began) != "") != passes {
			t.Errorf("%d: %v", port, !passes)
		}
	}
	// A shorter one does not end a longer one, and one that has ended makes room.
	all.add(granted{port: 10}, began, time.Second)
	expect(t, all.reason(granted{port: 10}, began.Add(10*time.Minute)) != "", true)
	expect(t, all.reason(granted{port: 10}, began.Add(11*time.Minute)), "")
	expect(t, len(all), grantsMost-1)
	all.add(granted{port: 0}, began.Add(time.Hour), time.Minute)
	all.add(granted{port: 1}, began.Add(time.Hour), time.Minute)
	expect(t, len(all) < grantsMost-40, true)
}

func TestTheLongestAskFitsIntoAMessage(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	one, other := channels(t)
	w.server("a.x", echoing)
	w.policy(asking)
	header := []string{}
	for i := range 120 {
		header = append(header, fmt.Sprint("X-", i), strings.Repeat(`"\`, 80)+"<&>\xff\t")
	}
	got := later(t, w.client(), "POST", "http://a.x/?"+strings.Repeat(`"`, 8<<10-2), "", header...)
	card := w.ask(1)
	must(t, one.Send(card))
	var told control.Ask
	_, err := other.Receive(&told)
	must(t, err)
	expect(t, told.HeadersLeftOut > 20 && len(told.Headers) > 90, true)
	expect(t, fmt.Sprint(told), fmt.Sprint(card))
	w.approves(card)
	expect(t, (<-got).StatusCode, 200)
}

// channels are the ends of one.
func channels(t *testing.T) (one, other *channel.Channel) {
	t.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	must(t, err)
	one, err = channel.Open(os.NewFile(uintptr(fds[0]), "one"))
	must(t, err)
	other, err = channel.Open(os.NewFile(uintptr(fds[1]), "other"))
	must(t, err)
	t.Cleanup(func() { one.Close(); other.Close() })
	return one, other
}

func TestNoTimeoutOfTheServersCutsWhatIsHeld(t *testing.T) {
	t.Parallel()
	w := newWorldOf(t, func(w *world, ctx context.Context) { w.edge.Tell(ctx, w) }, func(edge *Edge) {
		expect(t, edge.server.ReadTimeout+edge.server.WriteTimeout, 0*time.Second)
		edge.server.IdleTimeout, edge.server.ReadHeaderTimeout = 400*time.Millisecond, 400*time.Millisecond
	})
	w.secure("a.x", true, echoing)
	w.policy(asking)
	var came []<-chan reply
	for i, h2 := range []bool{false, true} {
		for j, body := range []string{"", "body"} {
			came = append(came, later(t, w.clientOver(h2), "POST", fmt.Sprint("https://a.x/", i, j), body))
		}
	}
	told := w.asks(4)
	time.Sleep(time.Second)
	for _, each := range told {
		w.approves(each)
	}
	for _, each := range came {
		expect(t, (<-each).StatusCode, 200)
	}
}
