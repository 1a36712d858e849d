package nameserver

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

func TestABurstIsFreeAndWhatFollowsWaitsItsTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		allowed, began := newPace(10, 3, time.Now), time.Now()
		for range 3 {
			if !allowed.wait(t.Context()) || time.Since(began) != 0 {
				t.Fatal("the burst is not free")
			}
			allowed.take()
		}
		for range 20 {
			allowed.wait(t.Context())
			allowed.take()
		}
		if took := time.Since(began); took < 1900*time.Millisecond || took > 2100*time.Millisecond {
			t.Errorf("20 times took %s", took)
		}
	})
}

func TestARestGivesNoMoreThanOneBurstBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		allowed := newPace(10, 3, time.Now)
		time.Sleep(time.Hour)
		for range 3 {
			allowed.wait(t.Context())
			allowed.take()
		}
		if allowed.until() == 0 {
			t.Error("a fourth is free")
		}
	})
}

func TestThoseWhoWaitTogetherAreNoFasterInTheLongRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		allowed, began, times := newPace(100, 50, time.Now), time.Now(), make(chan bool, 2000)
		for range 32 {
			go func() {
				for allowed.wait(t.Context()) && time.Since(began) < 10*time.Second {
					allowed.take()
					times <- true
				}
			}()
		}
		time.Sleep(11 * time.Second)
		synctest.Wait()
		if got := len(times); got < 900 || got > 1050+32 {
			t.Errorf("%d times in 10 s", got)
		}
	})
}

func TestWhoWaitsIsToldOfTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		allowed := newPace(0.001, 1, time.Now)
		allowed.take()
		time.AfterFunc(time.Second, cancel)
		began := time.Now()
		if allowed.wait(ctx) || time.Since(began) != time.Second {
			t.Errorf("it waited %s", time.Since(began))
		}
		if newPace(1, 1, time.Now).wait(ctx) {
			t.Error("it goes on after the end")
		}
	})
}
