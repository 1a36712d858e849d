package serve

import (
	"errors"
	"os"

	"atoll/channel"
	"atoll/edge/control"
)

// mark tells one connection of a sandbox from another. Each carrier numbers its own.
type mark struct {
	from Carrier
	id   string
}

// rules are a carrier's rules for a connection: indices of a version of the policy, and of the ceiling in it.
type rules struct {
	version    int64
	own, above []int
}

// taken is a connection as its carrier hands it over.
type taken struct {
	guest   *guestEnd
	name    string
	address string
	port    int
	rules   rules
}

// Carry handles a message about a connection. It owns the descriptor.
//
// The policy comes from the supervisor, perhaps another way than the connections, so either may be first.
func (e *Edge) Carry(from Carrier, message *control.Message, file *os.File) error {
	if message.Op == "take" {
		return e.take(from, message, file)
	}
	if file != nil {
		file.Close()
	}
	if message.Op != "rules" {
		return errors.New("there is no message " + message.Op + " of who carries connections")
	}
	return e.setRules(from, message)
}

func (e *Edge) take(from Carrier, message *control.Message, file *os.File) error {
	socket, err := channel.Stream(file)
	if err != nil {
		return err
	}
	came := &taken{
		guest: &guestEnd{Conn: socket, sandbox: message.Sandbox, mark: mark{from, message.Connection}},
		name:  message.Name, address: message.Address, port: message.Port, rules: rulesOf(message),
	}
	return e.admit(came)
}

// admit takes a connection, or has it wait for its policy.
func (e *Edge) admit(came *taken) error {
	e.mu.Lock()
	found := e.sandboxes[came.guest.sandbox]
	if !found.knows(came.rules.version) {
		defer e.mu.Unlock()
		return e.lobby.enter(came, e.expire)
	}
	e.mu.Unlock()
	return found.take(came)
}

// expire resets a connection whose policy did not come.
func (e *Edge) expire(came *taken) {
	e.mu.Lock()
	waits := e.lobby.drop(came)
	e.mu.Unlock()
	if waits {
		came.guest.reset(func() {})
	}
}

func (e *Edge) setRules(from Carrier, message *control.Message) error {
	which, given := mark{from, message.Connection}, rulesOf(message)
	e.mu.Lock()
	found := e.sandboxes[message.Sandbox]
	if waiting := e.lobby.find(message.Sandbox, which); waiting != nil {
		defer e.mu.Unlock()
		waiting.rules = given
		if !found.knows(given.version) {
			return nil
		}
		e.lobby.drop(waiting)
		return found.take(waiting)
	}
	e.mu.Unlock()
	if found != nil {
		if connection := found.connection(which); connection != nil {
			return connection.setRules(given)
		}
	}
	return nil // it has ended meanwhile
}

// Lose ends the connections of a carrier that is gone.
func (e *Edge) Lose(from Carrier) {
	e.mu.Lock()
	lost := e.lobby.lose(from)
	e.mu.Unlock()
	for _, each := range lost {
		each.guest.Close()
	}
	for _, each := range e.all() {
		each.lose(from)
	}
}

func rulesOf(message *control.Message) rules {
	return rules{version: message.Version, own: message.Rules, above: message.Ceiling}
}
