//go:build tools

// Package native pins the gVisor module that runsc is built from.
package native

import _ "gvisor.dev/gvisor/runsc"
