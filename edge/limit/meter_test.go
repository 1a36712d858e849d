package limit

import (
	"fmt"
	"testing"
	"time"

	"atoll/policy"
)

func ruleOf(t *testing.T, requests int64, seconds float64) *policy.Rule {
	t.Helper()
	return &policy.Rule{Key: "text", Limit: &policy.Limit{Requests: &requests, PerSeconds: &seconds}}
}

func request(t *testing.T, table *Table, rule *policy.Rule, at time.Time, want bool) {
	t.Helper()
	if _, ok := table.Of(rule).Request(at); ok != want {
		t.Errorf("a request at %s passes: %v", at.Format(time.StampMilli), ok)
	}
}

func took(t *testing.T, table *Table, want ...Told) {
	t.Helper()
	if got := table.Take(); fmt.Sprintf("%v", got) != fmt.Sprintf("%v", want) {
		t.Errorf("it tells %v, not %v", got, want)
	}
}

func TestTheRequestsOfAPartAreToldTogetherAndAgainToAnotherOwner(t *testing.T) {
	rule, table := ruleOf(t, 100, 600), &Table{}
	table.Resume([]*policy.Rule{rule}, []Spent{{Rule: 0, Key: "k", Total: 7}}, time.UnixMilli(0))
	took(t, table)
	const long = 1200 // a part, in milliseconds
	for i := range 3 {
		request(t, table, rule, time.UnixMilli(long+int64(i)), true)
	}
	took(t, table, Told{"k", 7, [][2]int64{{2 * long, 3}}})
	took(t, table)
	request(t, table, rule, time.UnixMilli(2*long-1), true)
	request(t, table, rule, time.UnixMilli(2*long), true)
	took(t, table, Told{"k", 7, [][2]int64{{2 * long, 4}, {3 * long, 1}}})
	request(t, table, rule, time.UnixMilli(2*long+1), true)
	took(t, table, Told{"k", 7, [][2]int64{{3 * long, 2}}})
	table.Greet()
	took(t, table, Told{"k", 7, [][2]int64{{2 * long, 4}, {3 * long, 2}}})
	took(t, table)
}

func TestAMeterCountsOnFromWhatWasTold(t *testing.T) {
	rule, table, now := ruleOf(t, 5, 600), &Table{}, time.UnixMilli(1_000_000)
	counted := []Spent{
		{Rule: 0, Key: "k", Total: 7, Requests: [][2]int64{{400_000, 9}, {400_200, 2}, {1_000_800, 1}, {9_000_000, 1}}},
		{Rule: 1, Key: "no rule"}, {Rule: -1, Key: "no rule"},
	}
	table.Resume([]*policy.Rule{rule}, counted, now)
	request(t, table, rule, now, true)
	request(t, table, rule, now, false) // 2 that are nearly gone, 1 of now, and 1 of a clock that was set back
	request(t, table, rule, now.Add(200*time.Millisecond), true)
	took(t, table, Told{"k", 7, [][2]int64{{1_000_800, 3}, {9_000_000, 1}}})
	// What it counts already is not resumed again.
	table.Resume([]*policy.Rule{rule}, counted, now)
	request(t, table, rule, now.Add(300*time.Millisecond), true)
	request(t, table, rule, now.Add(300*time.Millisecond), false)
	// Nor does a clock that was set back hold it up for longer than its time.
	request(t, table, rule, now.Add(602*time.Second), true)
}

func TestAMeterOfARuleThatIsGoneIsForgotten(t *testing.T) {
	rule, table := ruleOf(t, 1, 600), &Table{}
	request(t, table, rule, time.UnixMilli(0), true)
	table.Keep([]*policy.Rule{rule})
	request(t, table, rule, time.UnixMilli(1), false)
	table.Keep(nil)
	took(t, table)
	request(t, table, rule, time.UnixMilli(2), true)
}
