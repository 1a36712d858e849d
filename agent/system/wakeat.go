package system

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"
)

// WakeAtFile is where a program inside says when the sandbox is to wake if it sleeps then: in Unix seconds, or as +N in N
// seconds from when it was written.
const WakeAtFile = "/run/atoll/wake-at"

const (
	wakeAtMost = 366 * 24 * time.Hour
	// The host wakes the guest by its own clock, which may be a little ahead.
	wakeAtSlack = time.Second
)

// WakeAt is the time in the file in Unix seconds, or 0 if there is none to come. The error says why a text is no time.
func (s *System) WakeAt(now time.Time) (float64, error) {
	text, written := s.wish(WakeAtFile, now)
	if text == "" {
		return 0, nil
	}
	at, err := strconv.ParseFloat(strings.TrimPrefix(text, "+"), 64)
	if strings.HasPrefix(text, "+") {
		at += unixSeconds(written)
	}
	// Also false for what is not a number.
	if err != nil || !(at <= unixSeconds(now.Add(wakeAtMost))) {
		return 0, fmt.Errorf("%q is no time within a year, in Unix seconds or as +SECONDS", text)
	}
	if at <= unixSeconds(now) {
		return 0, nil
	}
	return at, nil
}

// ForgetWakeAt empties the file if its time has passed, or in any case.
func (s *System) ForgetWakeAt(now time.Time, always bool) {
	if at, err := s.WakeAt(now.Add(wakeAtSlack)); !always && (err != nil || at != 0) {
		return
	}
	if file, err := s.openWish(WakeAtFile, os.O_WRONLY); err == nil {
		defer file.Close()
		// What cannot be emptied has passed all the same.
		_ = file.Truncate(0)
	}
}

func unixSeconds(at time.Time) float64 { return float64(at.UnixNano()) / float64(time.Second) }
