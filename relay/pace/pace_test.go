package pace

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

func TestABurstIsFreeAndWhatFollowsWaitsItsTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		allowed, began := New(10, 3, time.Now), time.Now()
		for range 3 {
			if !allowed.Wait(t.Context()) || time.Since(began) != 0 {
				t.Fatal("the burst is not free")
			}
			allowed.Take()
		}
		for range 20 {
			allowed.Wait(t.Context())
			allowed.Take()
		}
		if took := time.Since(began); took < 1900*time.Millisecond || took > 2100*time.Millisecond {
			t.Errorf("20 times took %s", took)
		}
	})
}

func TestARestGivesNoMoreThanOneBurstBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		allowed := New(10, 3, time.Now)
		time.Sleep(time.Hour)
		for range 3 {
			allowed.Wait(t.Context())
			allowed.Take()
		}
		if allowed.until() == 0 {
			t.Error("a fourth is free")
		}
	})
}

func TestThoseWhoWaitTogetherAreNoFasterInTheLongRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		allowed, began, times := New(100, 50, time.Now), time.Now(), make(chan bool, 2000)
		for range 32 {
			go func() {
				for allowed.Wait(t.Context()) && time.Since(began) < 10*time.Second {
					allowed.Take()
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
		allowed := New(0.001, 1, time.Now)
		allowed.Take()
		time.AfterFunc(time.Second, cancel)
		began := time.Now()
		if allowed.Wait(ctx) || time.Since(began) != time.Second {
			t.Errorf("it waited %s", time.Since(began))
		}
		if New(1, 1, time.Now).Wait(ctx) {
			t.Error("it goes on after the end")
		}
	})
}
