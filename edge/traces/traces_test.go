package traces

import (
	"net/http"
	"strings"
	"testing"
)

const (
	trace = "0af7651916cd43dd8448eb211c80319c"
	span  = "b7ad6b7169203331"
)

func TestAParentIsReadAsTheStandardWritesIt(t *testing.T) {
	t.Parallel()
	got, ok := ParentOf(http.Header{"Traceparent": {"00-" + trace + "-" + span + "-01"}})
	if want := (Parent{trace, span}); !ok || got != want {
		t.Errorf("%v, %v", got, ok)
	}
}

func TestNothingElseIsAParent(t *testing.T) {
	t.Parallel()
	for _, values := range [][]string{
		nil,
		{""},
		{"00-" + trace + "-" + span + "-00"}, // not recorded
		{"01-" + trace + "-" + span + "-01"},
		{"00-" + trace + "-" + span + "-01-more"},
		{"00-" + strings.ToUpper(trace) + "-" + span + "-01"},
		{"00-" + strings.Repeat("0", 32) + "-" + span + "-01"},
		{"00-" + trace + "-" + strings.Repeat("0", 16) + "-01"},
		{"00-" + trace[1:] + "-" + span + "0-01"},
		{"00-" + trace[:31] + "/-" + span + "-01"},
		{"00-" + trace + "-" + span + "-0\n"},
		{"00-" + trace + "-" + span + "-01", "00-" + trace + "-" + span + "-01"},
	} {
		if got, ok := ParentOf(http.Header{"Traceparent": values}); ok {
			t.Errorf("%q is %v", values, got)
		}
	}
}

func TestAGuestFillsNoMoreThanItsRoom(t *testing.T) {
	t.Parallel()
	var keeper Keeper
	for range Most + 10 {
		one := Begin(Parent{trace, span})
		one.Method, one.Host, one.Rule = strings.Repeat("m", 9999), strings.Repeat("h", 9999), strings.Repeat("r", 9999)
		one.Model = &Model{Asked: strings.Repeat("a", 9999), Name: strings.Repeat("n", 9999), Provider: strings.Repeat("p", 9999)}
		keeper.End(one)
	}
	taken := keeper.Take()
	if len(taken) != Most || len(keeper.Take()) != 0 {
		t.Errorf("%d", len(taken))
	}
	one := taken[0]
	if len(one.Method)+len(one.Host)+len(one.Rule)+len(one.Model.Asked)+len(one.Model.Name)+len(one.Model.Provider) > 800 {
		t.Errorf("%+v", one)
	}
	if one.Began <= 0 || one.Took < 0 {
		t.Errorf("%d %d", one.Began, one.Took)
	}
}
