// Command atoll-edge judges what leaves sandboxes: it opens TLS, applies policies to requests, and holds secrets.
//
// The supervisor starts one for a home, with a SOCK_SEQPACKET socket. It opens no file, connects to
// nothing by itself and ends with the supervisor.
//
//go:debug updatemaxprocs=0
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"runtime/debug"

	"atoll/channel"
	"atoll/confine"
	"atoll/edge/control"
	"atoll/edge/serve"
)

const (
	// The heap may grow to three times what is used before it is collected, up to where memory counts more than speed.
	heapGrowth = 200
	memoryMost = 512 << 20
)

func main() {
	user := flag.Int("user", -1, "the user and group to become, when root")
	channelFD := flag.Int("channel", 3, "the descriptor of the socket to the supervisor")
	flag.Parse()
	if err := run(*user, *channelFD); err != nil {
		fmt.Fprintln(os.Stderr, "atoll-edge:", err)
		os.Exit(1)
	}
}

func run(user, channelFD int) error {
	debug.SetGCPercent(heapGrowth)
	debug.SetMemoryLimit(memoryMost)
	if err := confine.AtStart(); err != nil {
		return err
	}
	if err := confine.CloseOthers(channelFD); err != nil {
		return err
	}
	link, err := channel.Open(os.NewFile(uintptr(channelFD), "channel"))
	if err != nil {
		return err
	}
	config, err := configuration(link)
	if err != nil {
		return err
	}
	edge, err := serve.New(config, supervisor{link})
	if err != nil {
		return err
	}
	confined, err := confine.Confine(user, confine.Allow{})
	if err != nil {
		return err
	}
	if err := link.Send(control.Ready{Op: "ready", Protocol: control.Protocol, Confined: confined}); err != nil {
		return err
	}
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	go func() {
		if err := edge.Run(ctx); ctx.Err() == nil {
			fmt.Fprintln(os.Stderr, "atoll-edge:", err)
			os.Exit(1)
		}
	}()
	return supervisor{link}.listen(edge)
}

func configuration(link *channel.Channel) (control.Config, error) {
	var config control.Config
	message, file, err := control.Receive(link)
	if err != nil {
		return config, err
	}
	if message.Op != "config" {
		return config, errors.New("the first message is not the configuration")
	}
	return config, channel.Content(file, &config)
}

// supervisor is the process that started the edge.
type supervisor struct{ link *channel.Channel }

// Send tells it something.
func (s supervisor) Send(message any) error { return s.link.Send(message) }

// listen does what the supervisor says until it is gone. It carries connections too.
func (s supervisor) listen(edge *serve.Edge) error {
	carrier := control.NewCarrier(s.link)
	relays := newRelays(edge, s)
	for {
		message, file, err := control.Receive(s.link)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		switch message.Op {
		case "relay":
			err = relays.replace(file)
		case "take", "rules", "dialled":
			err = carry(edge, carrier, message, file)
		default:
			err = edge.Handle(message, file)
		}
		if err != nil {
			// A supervisor that does not read any more is seen as gone at the next message.
			_ = s.Send(control.Log{Op: "log", Text: err.Error()})
		}
	}
}

// carry does what a carrier says about a connection.
func carry(edge *serve.Edge, from *control.Carrier, message *control.Message, file *os.File) error {
	if message.Op == "dialled" {
		from.Answer(message, file)
		return nil
	}
	return edge.Carry(from, message, file)
}
