package policy

import (
	"errors"
	"time"
)

// Asking says how a rule asks.
type Asking struct {
	DeadlineS *float64 `json:"deadline_s"` // nil: 300
	Approvals *int     `json:"approvals"`  // how many have to approve; the supervisor counts them
}

const (
	deadlineUsual = 300 * time.Second
	deadlineMostS = 3600
	approvalsMost = 2
)

func (a *Asking) check() error {
	switch {
	case a == nil:
	case a.DeadlineS != nil && (*a.DeadlineS < 1 || *a.DeadlineS > deadlineMostS):
		return errors.New("the deadline_s of an ask is not 1 to 3600")
	case a.Approvals != nil && (*a.Approvals < 1 || *a.Approvals > approvalsMost):
		return errors.New("the approvals of an ask are not 1 or 2")
	}
	return nil
}

// Deadline is how long the rule has a request wait for an answer.
func (r *Rule) Deadline() time.Duration {
	if r.Ask == nil || r.Ask.DeadlineS == nil {
		return deadlineUsual
	}
	return time.Duration(*r.Ask.DeadlineS * float64(time.Second))
}

// AnyAsks tells whether one of the rules asks.
func AnyAsks(rules []*Rule) bool {
	for _, rule := range rules {
		if rule.Action == Ask {
			return true
		}
	}
	return false
}
