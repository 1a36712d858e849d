package home

import (
	"context"
	"strconv"
	"sync"

	"atoll/edge/control"
)

const (
	faultsMost = 32
	textMost   = 1024
)

// faults are the edge's own, which wait for an owner that reads. What is more than there is room for is counted.
type faults struct {
	news chan struct{} // holds one: there is something

	mu      sync.Mutex
	waiting []string
	dropped int
}

func newFaults() *faults { return &faults{news: make(chan struct{}, 1)} }

func (f *faults) note(text string) {
	f.mu.Lock()
	if len(f.waiting) < faultsMost {
		f.waiting = append(f.waiting, text[:min(len(text), textMost)])
	} else {
		f.dropped++
	}
	f.mu.Unlock()
	f.wake()
}

func (f *faults) wake() {
	select {
	case f.news <- struct{}{}:
	default:
	}
}

// tell tells an owner, until the context ends or it takes no more. There is one owner at a time.
func (f *faults) tell(ctx context.Context, to *peer) {
	f.wake() // the owner before may have slept through something
	for {
		select {
		case <-f.news:
		case <-ctx.Done():
			return
		}
		for _, text := range f.take() {
			if to.Send(control.Log{Op: "log", Text: text}) != nil {
				return
			}
		}
	}
}

func (f *faults) take() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	texts := f.waiting
	if f.dropped > 0 {
		texts = append(texts, "more was to be logged than there was room for: "+strconv.Itoa(f.dropped))
	}
	f.waiting, f.dropped = nil, 0
	return texts
}
