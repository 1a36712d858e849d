package serve

import (
	"net/http"
	"time"

	"atoll/edge/seen"
	"atoll/policy"
)

// unnoted refuses what could not be noted.
var unnoted = &refusal{
	status: http.StatusServiceUnavailable, code: "egress_unnoted", retry: 10 * time.Second,
	message: "this request cannot be noted: the supervisor of this sandbox is away, or cannot write its audit log",
	remedy:  "try again later: requests pass again once the earlier ones are noted",
}

// canNote tells whether what is decided now can be noted. Otherwise nothing may pass.
func (s *sandbox) canNote() bool { return !s.edge.late.Load() && !s.seen.IsFull() }

// noteNothing counts what is refused because it cannot be noted.
func (c *connection) noteNothing(scheme, method string) {
	c.sandbox.seen.Refuse(seen.Entry{
		Action: policy.Deny, Host: c.host(), Port: c.to.Port, Scheme: scheme, Method: method, Reason: unnoted.message,
	})
	wake(c.sandbox.edge.news)
}
