package policy

// Bounded joins the verdicts of a policy and of the ceiling over it: a request must pass both. Each has judged by itself,
// so neither can widen the other, and nobody is asked about what the ceiling denies. Without a ceiling, the second one is nil.
func Bounded(own Verdict, ceiling *Verdict) Verdict {
	switch {
	case ceiling == nil, own.Action == Unplug && !own.Observed:
		return own
	case ceiling.Action == Unplug, (own.Passes() || own.Asks()) && !ceiling.Passes():
		decided := *ceiling
		decided.Ceiling = true
		return decided
	}
	return own
}
