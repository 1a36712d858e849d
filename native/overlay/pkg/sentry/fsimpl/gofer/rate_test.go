package gofer

import (
	"testing"
	"time"

	"gvisor.dev/gvisor/pkg/context"
)

func TestACallMovesATenthOfASecondAtMost(t *testing.T) {
	for rate, most := range map[int64]int64{0: 1 << 62, 1: 1 << 16, 1 << 19: 1 << 16, 100 << 20: 10 << 20} {
		var r diskRate
		r.Set(rate)
		if got := r.most(); got != most {
			t.Errorf("at %d bytes a second most() = %d, want %d", rate, got, most)
		}
	}
}

func TestWithoutARateNobodyWaits(t *testing.T) {
	var r diskRate
	r.note(1 << 40)
	if err := r.wait(context.Background()); err != nil || r.have != 0 {
		t.Errorf("wait() = %v, have %v", err, r.have)
	}
}

func TestABucketHoldsATenthOfASecond(t *testing.T) {
	var r diskRate
	r.Set(1000)
	if debt := r.debt(1000); debt != -100 {
		t.Errorf("the debt is %v after a long rest", debt)
	}
	r.note(0)
	r.note(-5)
	r.note(600)
	if debt := r.debt(1000); debt < 490 || debt > 500 {
		t.Errorf("the debt is %v after 600 bytes", debt)
	}
	r.at = r.at.Add(-time.Second)
	if debt := r.debt(1000); debt != -100 {
		t.Errorf("the debt is %v a second later", debt)
	}
}

func TestACallWaitsUntilTheDebtIsPaid(t *testing.T) {
	var r diskRate
	r.Set(1 << 20)
	r.debt(1 << 20)
	r.note(1<<20/10 + 1<<20/20)
	began := time.Now()
	if err := r.wait(context.Background()); err != nil {
		t.Fatal(err)
	}
	if took := time.Since(began); took < 40*time.Millisecond {
		t.Errorf("it waited %v for 50 ms", took)
	}
}

func TestWhomNobodyCanInterruptWaitsForASecondAtMost(t *testing.T) {
	var r diskRate
	r.Set(1)
	r.debt(1)
	r.note(1 << 30)
	began := time.Now()
	if err := r.wait(context.Background()); err != nil {
		t.Fatal(err)
	}
	if took := time.Since(began); took < asyncWaitMost || took > 5*asyncWaitMost {
		t.Errorf("it waited %v", took)
	}
}
