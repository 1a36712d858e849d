package system

import (
	"strconv"
	"time"
)

// KeepAwakeFile is where a program inside says for how many seconds from now the sandbox is to stay awake.
const KeepAwakeFile = "/run/atoll/keep-awake"

const keepAwakeMost = time.Hour

// KeepAwake is how many seconds are left of what the file asks for: at most an hour, counted from when it was
// written.
func (s *System) KeepAwake(now time.Time) float64 {
	text, written := s.wish(KeepAwakeFile, now)
	seconds, err := strconv.ParseFloat(text, 64)
	if err != nil || !(seconds > 0) {
		return 0
	}
	asked := min(seconds, keepAwakeMost.Seconds())
	return max(0, asked-now.Sub(written).Seconds())
}
