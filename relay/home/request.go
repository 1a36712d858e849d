package home

import (
	"fmt"
	"os"

	"atoll/channel"
	"atoll/relay/control"
	"atoll/relay/names"
)

// handle serves a request, and gives the content of the answer.
func (p *peer) handle(message *control.Message, files []*os.File) (any, error) {
	h := p.home
	switch message.Op {
	case "link":
		return nil, h.add(message.Link, files)
	case "reached":
		return nil, h.events.reached(message.ID, message.Error, files)
	case "settings":
		content, err := read[control.Settings](files)
		if err != nil {
			return nil, err
		}
		return nil, h.outside.set(content)
	case "stay":
		return nil, h.stay(files)
	case "edge":
		return nil, h.attach(message.Pair, files)
	case "rules", "take_over":
		return nil, h.change(message, files)
	case "ask":
		return h.ask(message, files)
	}
	// The others come without descriptors.
	if len(files) > 0 {
		channel.CloseAll(files)
		return nil, fmt.Errorf("the message came with %d descriptors", len(files))
	}
	switch message.Op {
	case "hello":
		return p.hello(message.Protocol)
	case "forget_names":
		h.outside.resolver.Forget()
		return nil, nil
	case "unlink":
		return nil, h.remove(message.Link)
	case "end":
		return nil, nil
	}
	return p.command(message)
}

// command serves a request about a link.
func (p *peer) command(message *control.Message) (any, error) {
	link, err := p.home.link(message.Link)
	if err != nil {
		return nil, err
	}
	switch message.Op {
	case "hold":
		link.guest.Hold()
	case "release":
		link.awake()
		link.guest.Release()
	case "reset":
		link.guest.Reset()
	case "probe":
		link.guest.Probe()
	case "watch":
		link.awake()
		link.guest.Watch()
	case "cut":
		link.cut()
		if p.isOwner() { // it knows why, if there was a reason before
			link.settle()
		}
	case "mend":
		return flows{control.FlowsOf(link.mend())}, nil
	default:
		return nil, fmt.Errorf("nobody knows what %q means", message.Op)
	}
	return nil, nil
}

// attach connects the relay to a process that judges requests.
func (h *Home) attach(pair string, files []*os.File) error {
	file, err := one(files)
	if err != nil {
		return err
	}
	if h.parts.Edges == nil {
		file.Close()
		return errNoEdge
	}
	to, err := channel.Open(file)
	if err != nil {
		return err
	}
	h.parts.Edges.Attach(to, pair)
	return nil
}

// change gives a link other rules or names.
func (h *Home) change(message *control.Message, files []*os.File) error {
	link, err := h.link(message.Link)
	if err != nil {
		channel.CloseAll(files)
		return err
	}
	if message.Op == "take_over" {
		content, err := read[[]control.Name](files)
		if err != nil {
			return err
		}
		pairs := make([]names.Pair, len(*content))
		for i, each := range *content {
			pairs[i] = names.Pair(each)
		}
		return link.names.TakeOver(pairs)
	}
	content, err := read[control.Rules](files)
	if err == nil {
		err = link.setRules(message.Sandbox, message.Version, content)
	}
	if err != nil {
		// The earlier rules may have been taken back.
		link.shut()
	}
	return err
}

// give answers with the sockets of a link, which go on here, and with what it does now.
func (p *peer) give(message *control.Message) error {
	link, err := p.home.link(message.Link)
	if err != nil {
		return control.Reply(p.Channel, message.ID, nil, err)
	}
	files, err := link.sockets.copies()
	defer channel.CloseAll(files)
	if err != nil {
		return control.Reply(p.Channel, message.ID, nil, err)
	}
	content := control.Given{Held: link.guest.IsHeld(), Cut: link.cutNow()}
	return control.Reply(p.Channel, message.ID, content, nil, files...)
}

type flows struct {
	Flows []control.Flow `json:"flows"`
}

// ask answers a question about a link.
func (h *Home) ask(message *control.Message, files []*os.File) (any, error) {
	link, err := h.link(message.Link)
	if err == nil && message.What == control.Kept {
		known, err := read[[]control.Flow](files)
		if err != nil {
			return nil, err
		}
		return map[string]*int{"kept": link.kept(control.Known(*known))}, nil
	}
	channel.CloseAll(files)
	if err != nil {
		return nil, err
	}
	switch message.What {
	case control.Flows:
		link.guest.AwaitAccepted()
		return flows{control.FlowsOf(link.guest.Flows())}, nil
	case control.Owes:
		return map[string]bool{"owes": link.guest.OwesServers()}, nil
	case control.Fresh:
		return map[string]bool{"fresh": link.guest.IsFresh()}, nil
	case control.Watched:
		return map[string]bool{"watched": link.guest.IsWatched()}, nil
	case control.Asked:
		return map[string]bool{"asked": link.server.Asked()}, nil
	case control.Names:
		pairs := link.names.All()
		content := make([]control.Name, len(pairs))
		for i, each := range pairs {
			content[i] = control.Name(each)
		}
		return map[string][]control.Name{"names": content}, nil
	}
	return nil, fmt.Errorf("nobody knows what to answer to %q", message.What)
}

// read reads the content of a message.
func read[T any](files []*os.File) (*T, error) {
	file, err := one(files)
	if err != nil {
		return nil, err
	}
	content := new(T)
	if err := channel.Content(file, content); err != nil {
		return nil, err
	}
	return content, nil
}
