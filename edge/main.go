// Command atoll-edge judges the requests of sandboxes: it opens TLS, applies policies to requests, and holds secrets.
//
// The supervisor starts one for a home, with a SOCK_SEQPACKET socket on which the next supervisor finds it. It opens no file,
// and connects to nothing by itself.
//
//go:debug updatemaxprocs=0
package main

import (
	"flag"
	"fmt"
	"os"
	"runtime/debug"

	"atoll/channel"
	"atoll/confine"
	"atoll/edge/home"
)

const (
	// The heap may grow to three times the memory in use before it is collected, up to where memory counts more than speed.
	heapGrowth = 200
	memoryMost = 512 << 20
)

func main() {
	user := flag.Int("user", -1, "the user and group to become, when root")
	listenFD := flag.Int("listen", 3, "the descriptor of the SOCK_SEQPACKET socket on which its owner connects")
	flag.Parse()
	if err := run(*user, *listenFD); err != nil {
		fmt.Fprintln(os.Stderr, "atoll-edge:", err)
		os.Exit(1)
	}
}

func run(user, listenFD int) error {
	debug.SetGCPercent(heapGrowth)
	debug.SetMemoryLimit(memoryMost)
	who := os.Getuid()
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
	confined, err := confine.Confine(user, confine.Allow{Accept: true})
	if err != nil {
		return err
	}
	return home.New(who, confined).Serve(listener)
}
