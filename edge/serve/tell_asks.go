package serve

import "atoll/edge/control"

// How much of a body goes into one message.
const partBytes = 32 << 10

// tellAsks sends the asks that the owner does not know, and those that have ended.
func (e *Edge) tellAsks(to Owner) error {
	for _, each := range e.claimed() {
		for _, one := range each.asks.untold() {
			if err := each.asks.send(one, to); err != nil {
				return err
			}
		}
		if err := sendEnds(each.asks.takeEnds(), to); err != nil {
			return err
		}
	}
	e.mu.Lock()
	ended := e.ended
	e.ended = nil
	e.mu.Unlock()
	return sendEnds(ended, to)
}

// send sends an ask, and the body before it. An ask that has ended meanwhile is not sent.
func (a *asks) send(one *ask, to Owner) error {
	card, body, isOpen := a.tell(one)
	if !isOpen {
		return nil
	}
	for at := 0; at < len(body); at += partBytes {
		part := body[at:min(at+partBytes, len(body))]
		err := to.Send(control.AskBody{Op: "ask_body", Sandbox: a.sandbox, Ask: card.Ask, Offset: at, Part: part})
		if err != nil {
			return err
		}
	}
	return to.Send(card)
}

func sendEnds(ended []control.AskEnd, to Owner) error {
	for _, each := range ended {
		if err := to.Send(each); err != nil {
			return err
		}
	}
	return nil
}

// tellAskCounts sends how many equal requests are held now.
func (e *Edge) tellAskCounts(to Owner) error {
	for _, each := range e.claimed() {
		for _, count := range each.asks.takeCounts() {
			if err := to.Send(count); err != nil {
				return err
			}
		}
	}
	return nil
}
