package serve

import (
	"fmt"
	"time"
)

const (
	// How long a connection waits for its policy.
	lobbyMost = 5 * time.Second
	// How many wait, of all sandboxes.
	lobbyRoom = 8 * connectionsMost
)

// lobby has connections whose policy has not come yet, by sandbox. The edge's lock guards it.
type lobby struct {
	waiting map[string]map[mark]*taken
	count   int
}

// enter has a connection wait. Expired is called if it waits too long.
func (l *lobby) enter(came *taken, expired func(*taken)) error {
	guest := came.guest
	own := l.waiting[guest.sandbox]
	if _, twice := own[guest.mark]; twice || len(own) >= connectionsMost || l.count >= lobbyRoom {
		guest.Close()
		return fmt.Errorf("connection %s: %d connections wait for a policy, or this one twice", guest.mark.id, l.count)
	}
	if own == nil {
		if l.waiting == nil {
			l.waiting = map[string]map[mark]*taken{}
		}
		own = map[mark]*taken{}
		l.waiting[guest.sandbox] = own
	}
	own[guest.mark] = came
	l.count++
	time.AfterFunc(lobbyMost, func() { expired(came) })
	return nil
}

// find is a connection that waits; nil: it does not.
func (l *lobby) find(sandbox string, which mark) *taken { return l.waiting[sandbox][which] }

// drop has a connection not wait any more. It is false if it did not.
func (l *lobby) drop(came *taken) bool {
	own := l.waiting[came.guest.sandbox]
	if own[came.guest.mark] != came {
		return false
	}
	delete(own, came.guest.mark)
	l.count--
	if len(own) == 0 {
		delete(l.waiting, came.guest.sandbox)
	}
	return true
}

// leave returns the connections that need no newer version of the policy. They do not wait any more.
func (l *lobby) leave(sandbox string, version int64) []*taken {
	return l.dropThose(sandbox, func(each *taken) bool { return each.rules.version <= version })
}

// lose returns the connections of a carrier. They do not wait any more.
func (l *lobby) lose(from Carrier) []*taken {
	var lost []*taken
	for sandbox := range l.waiting {
		lost = append(lost, l.dropThose(sandbox, func(each *taken) bool { return each.guest.mark.from == from })...)
	}
	return lost
}

func (l *lobby) dropThose(sandbox string, are func(*taken) bool) []*taken {
	var dropped []*taken
	for _, each := range l.waiting[sandbox] {
		if are(each) {
			dropped = append(dropped, each)
		}
	}
	for _, each := range dropped {
		l.drop(each)
	}
	return dropped
}
