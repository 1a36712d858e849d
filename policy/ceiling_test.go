package policy

import "testing"

func TestWhatPassesMustPassBoth(t *testing.T) {
	verdicts := []Verdict{
		{Action: Allow}, {Action: Deny}, {Action: Unplug},
		{Action: Deny, Observed: true}, {Action: Unplug, Observed: true},
	}
	for _, own := range verdicts {
		if got := Bounded(own, nil); got != own {
			t.Errorf("without a ceiling %v becomes %v", own, got)
		}
		for _, over := range verdicts[:3] {
			got := Bounded(own, &over)
			if got.Passes() != (own.Passes() && over.Passes()) {
				t.Errorf("%v under %v gives %v", own, over, got)
			}
			unplugs := over.Action == Unplug || own.Action == Unplug && !own.Observed
			if (got.Action == Unplug && !got.Observed) != unplugs {
				t.Errorf("%v under %v gives %v", own, over, got)
			}
			if got.Ceiling && over.Action == Allow || !got.Ceiling && got != own {
				t.Errorf("%v under %v gives %v", own, over, got)
			}
		}
	}
}

func TestARefusalOfTheCeilingSaysSo(t *testing.T) {
	kept := rules(t, `{"action":"deny","name":"no mail"}`)
	over := JudgeRaw(kept, false)
	got := Bounded(Verdict{Action: Allow}, &over)
	if got.Why() != "the team's ceiling: rule no mail decides" || got.Rule != kept.Rules[0] {
		t.Errorf("%+v: %s", got, got.Why())
	}
	own := Bounded(over, &Verdict{Action: Allow})
	if own.Why() != "rule no mail decides" {
		t.Errorf("%+v: %s", own, own.Why())
	}
}
