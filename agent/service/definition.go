// Package service keeps programs running that the host has defined.
package service

import (
	"regexp"
	"time"

	"atoll/agent/fault"
)

// When a service is started again after its end.
const (
	Always    = "always"
	OnFailure = "on-failure"
	Never     = "never"
)

var nameForm = regexp.MustCompile(`^[a-z0-9][a-z0-9-]{0,62}$`)

// Definition is what the host says of a service.
type Definition struct {
	Name    string            `json:"name"`
	Argv    []string          `json:"argv"`
	Line    *string           `json:"line"`
	Cwd     string            `json:"cwd"`
	Env     map[string]string `json:"env"`
	User    string            `json:"user"`
	Restart string            `json:"restart"`
	Health  *Health           `json:"health"`
	// Scheduled: it runs when the host starts it, once, and no longer than the timeout.
	Scheduled bool  `json:"scheduled"`
	TimeoutMS int64 `json:"timeout_ms"`
}

// Health says how to tell whether a service works: by a line that ends with 0, or by a port that takes connections.
type Health struct {
	Line      string `json:"line"`
	Port      int    `json:"port"`
	EveryMS   int64  `json:"every_ms"`
	TimeoutMS int64  `json:"timeout_ms"`
	GraceMS   int64  `json:"grace_ms"`
	Failures  int    `json:"failures"`
}

func (h *Health) every() time.Duration {
	return max(time.Duration(h.EveryMS)*time.Millisecond, everyLeast)
}
func (h *Health) timeout() time.Duration {
	return max(time.Duration(h.TimeoutMS)*time.Millisecond, everyLeast)
}
func (h *Health) grace() time.Duration { return time.Duration(h.GraceMS) * time.Millisecond }

func (d *Definition) check() error {
	if !nameForm.MatchString(d.Name) {
		return fault.New(fault.Invalid, "%q is not the name of a service", d.Name)
	}
	switch d.Restart {
	case Always, OnFailure, Never:
	default:
		return fault.New(fault.Invalid, "%q does not say when to restart a service", d.Restart)
	}
	if (d.Line == nil) == (len(d.Argv) == 0) {
		return fault.New(fault.Invalid, "give argv or line")
	}
	if d.Health != nil && (d.Health.Line == "") == (d.Health.Port == 0) {
		return fault.New(fault.Invalid, "give a health check a line or a port")
	}
	return nil
}
