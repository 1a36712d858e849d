package models

// Usage is how many tokens a request used. Those of the input are counted once, where they belong.
type Usage struct {
	Input      int64 `json:"input"` // not from a cache
	CacheRead  int64 `json:"cache_read"`
	CacheWrite int64 `json:"cache_write"`
	Output     int64 `json:"output"`

	hour int64 // of those that go into a cache, how many stay for an hour
}

// Tokens are all of them.
func (u Usage) Tokens() int64 { return add(add(u.Input, u.CacheRead), add(u.CacheWrite, u.Output)) }

// AtLeast is the larger of both, part by part.
func (u Usage) AtLeast(other Usage) Usage {
	return Usage{
		max(u.Input, other.Input), max(u.CacheRead, other.CacheRead), max(u.CacheWrite, other.CacheWrite),
		max(u.Output, other.Output), max(u.hour, other.hour),
	}
}

// Price is what a token costs, in nano-dollars.
type Price struct {
	Input      int64 `json:"input"`
	CacheRead  int64 `json:"cache_read"`
	CacheWrite int64 `json:"cache_write"`
	Output     int64 `json:"output"`
}

// Of is what a usage costs.
func (p Price) Of(used Usage) int64 {
	input := add(times(p.Input, used.Input), times(p.CacheRead, used.CacheRead))
	written := add(times(p.CacheWrite, used.CacheWrite), forHour(times(p.CacheWrite, min(used.hour, used.CacheWrite))))
	return add(add(input, written), times(p.Output, used.Output))
}

// forHour is how much more it costs to keep in a cache for an hour: 1.6 times as much as usual.
func forHour(usual int64) int64 { return (usual/5)*3 + (usual%5*3+4)/5 }

// Worst is what a request costs at most: its input may all go into the cache.
func (p Price) Worst(input, output int64) Amount {
	dearest := max(p.Input, p.CacheRead, add(p.CacheWrite, forHour(p.CacheWrite)))
	return Amount{add(input, output), add(times(dearest, input), times(p.Output, output))}
}

// Affords is how many tokens of output an amount pays for, behind that much input. A kind of limit that is not there does
// not count.
func (p Price) Affords(left Amount, limits Limits, input int64) int64 {
	output := int64(most)
	if limits.Tokens {
		output = left.Tokens - input
	}
	if rest := left.Nanos - p.Worst(input, 0).Nanos; limits.Money && rest < 0 {
		output = -1
	} else if limits.Money && p.Output > 0 {
		output = min(output, rest/p.Output)
	}
	return output
}
