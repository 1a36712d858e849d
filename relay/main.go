// Command atoll-relay carries the traffic of sandboxes: it accepts their connections, judges where they go, connects, and
// moves the bytes. It holds no secrets of sandboxes.
//
// One runs for a home. It gets the sockets of each sandbox by a SOCK_SEQPACKET socket, and opens no file.
//
//go:debug updatemaxprocs=0
package main

import (
	"flag"
	"fmt"
	"os"
	"os/signal"
	"runtime/debug"
	"syscall"

	"atoll/channel"
	"atoll/confine"
	"atoll/relay/home"
	"atoll/relay/neighbour"
	"atoll/relay/own"
)

const (
	// Most moving bytes stay in the kernel. The heap has only waiting ones, and is small.
	heapGrowth = 50
	memoryMost = 1 << 30
)

func main() {
	user := flag.Int("user", -1, "the user and group to become, when root")
	listenFD := flag.Int("listen", 3, "the descriptor of the SOCK_SEQPACKET socket on which others may ask")
	flag.Parse()
	if err := run(*user, *listenFD, home.Parts{}); err != nil {
		fmt.Fprintln(os.Stderr, "atoll-relay:", err)
		os.Exit(1)
	}
}

// run carries traffic until it is told to end, with parts that are not of this process.
func run(user, listenFD int, parts home.Parts) error {
	debug.SetGCPercent(heapGrowth)
	debug.SetMemoryLimit(memoryMost)
	ending := make(chan os.Signal, 1)
	signal.Notify(ending, syscall.SIGTERM)
	parts.User = os.Getuid()
	if err := confine.AtStart(); err != nil {
		return err
	}
	if err := confine.CloseOthers(listenFD); err != nil {
		return err
	}
	listener, err := channel.Listener(listenFD)
	if err != nil {
		return err
	}
	kernel, err := own.Open()
	if err != nil {
		return err
	}
	parts.Kernel = kernel
	parts.Edges = edges{neighbour.New()}
	if parts.Confined, err = confine.Confine(user, confine.Allow{Network: true}); err != nil {
		return err
	}
	made := home.New(parts)
	go func() {
		<-ending
		made.End()
	}()
	return made.Serve(listener)
}
