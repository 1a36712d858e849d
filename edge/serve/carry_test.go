package serve

import (
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"atoll/edge/control"
)

func TestWhatACarrierSaysIsChecked(t *testing.T) {
	file := func() *os.File {
		opened, err := os.Open(os.DevNull)
		must(t, err)
		return opened
	}
	socket := func() *os.File {
		_, theirs := sockets(t)
		return theirs
	}
	for name, c := range map[string]struct {
		message control.Message
		file    *os.File
		fault   bool
	}{
		"no socket":          {control.Message{Op: "take", Sandbox: "s", Connection: "c1"}, nil, true},
		"another descriptor": {control.Message{Op: "take", Sandbox: "s", Connection: "c1"}, file(), true},
		"no name": {
			control.Message{Op: "take", Sandbox: "s", Version: 1, Connection: "c1", Name: "a b"}, socket(), true,
		},
		"rules that are not there": {
			control.Message{Op: "take", Sandbox: "s", Version: 1, Connection: "c1", Name: "a.x", Port: 80, Rules: []int{-1}},
			socket(), true,
		},
		"not its right":       {control.Message{Op: "policy", Sandbox: "s", Version: 9}, file(), true},
		"nor this":            {control.Message{Op: "forget", Sandbox: "s"}, nil, true},
		"rules of nobody":     {control.Message{Op: "rules", Sandbox: "other", Connection: "c1"}, nil, false},
		"rules of what ended": {control.Message{Op: "rules", Sandbox: "s", Connection: "c9"}, nil, false},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.policy(inspected)
			err := w.edge.Carry(w, &c.message, c.file)
			if (err != nil) != c.fault {
				t.Errorf("the fault is %v", err)
			}
			if c.file != nil {
				// It is closed, or a connection's now, which the edge has made its own.
				if _, err := unix.FcntlInt(c.file.Fd(), unix.F_GETFD, 0); err == nil {
					t.Error("the descriptor is left open")
				}
			}
			if w.edge.sandboxes["s"].current().version != 1 {
				t.Error("the policy has changed")
			}
			w.edge.Lose(w)
		})
	}
}
