package serve

import "context"

const (
	budgetUnit = 16 << 10
	budgetMost = 32 << 20
)

// budget bounds how many bytes of bodies a sandbox may have held at once.
type budget struct {
	turn  chan struct{}
	units chan struct{}
}

func newBudget() *budget {
	return &budget{turn: make(chan struct{}, 1), units: make(chan struct{}, budgetMost/budgetUnit)}
}

// take waits until this many bytes may be held, and returns a function that gives them back.
func (b *budget) take(ctx context.Context, size int64) (func(), error) {
	wanted := int(min(size+budgetUnit-1, budgetMost) / budgetUnit)
	select {
	case b.turn <- struct{}{}:
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	defer func() { <-b.turn }()
	taken := 0
	giveBack := func() {
		for range taken {
			<-b.units
		}
	}
	for taken < wanted {
		select {
		case b.units <- struct{}{}:
			taken++
		case <-ctx.Done():
			giveBack()
			return nil, context.Cause(ctx)
		}
	}
	return giveBack, nil
}
