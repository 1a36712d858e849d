// Command agent is process 1 of every sandbox: it serves atoll's own routes and E2B's envd protocol.
package main

import (
	"errors"
	"flag"
	"fmt"
	"log"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/signal"
	"runtime"
	"runtime/debug"
	"strconv"
	"syscall"
	"time"

	"atoll/agent/atollapi"
	"atoll/agent/envd"
	"atoll/agent/hooks"
	"atoll/agent/process"
	"atoll/agent/settings"
	"atoll/agent/system"
	"atoll/agent/user"
)

const (
	mostThreads   = 4
	gcPercent     = 50
	memoryLimit   = 96 << 20
	headerTimeout = 30 * time.Second
	idleTimeout   = 640 * time.Second
	headerMost    = 64 << 10
)

func main() {
	port := flag.Int("port", 49983, "TCP port to listen on")
	address := flag.String("address", "", "address to listen on; default: every address")
	host := flag.String("host", "10.254.0.1", "address that the host calls from; if empty, every caller is answered")
	flag.Parse()
	// Little memory at rest matters more than the last bit of throughput.
	debug.SetGCPercent(gcPercent)
	debug.SetMemoryLimit(memoryLimit)
	runtime.GOMAXPROCS(min(runtime.NumCPU(), mostThreads))
	syscall.Umask(0o022)
	outliveSignals()
	carryImage()
	if err := serve(net.JoinHostPort(*address, strconv.Itoa(*port)), *host); err != nil {
		log.SetFlags(0)
		log.Print("atoll agent: ", err)
		os.Exit(1)
	}
}

// outliveSignals keeps a stray `kill 1` inside from ending the whole sandbox.
//
// It catches them and does not ignore them, because programs would inherit that.
func outliveSignals() {
	if os.Getpid() == 1 {
		signal.Notify(make(chan os.Signal, 1), syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT,
			syscall.SIGTERM, syscall.SIGUSR1, syscall.SIGUSR2)
	}
}

// carryImage brings the image's files into directories that begin as memory at each boot. A failure gets a line in the log,
// and is no reason to end a sandbox.
func carryImage() {
	if os.Getpid() != 1 {
		return
	}
	guest := &system.System{Root: "/"}
	if err := guest.Carry("/run", "/tmp"); err != nil {
		fmt.Fprintf(os.Stderr, "%s image: %v\n", time.Now().UTC().Format(time.RFC3339), err)
	}
	// Without them, only root may say when to be awake.
	_ = guest.OfferWishes()
}

func serve(address, host string) error {
	listener, err := listen(address, host)
	if err != nil {
		return err
	}
	server := &http.Server{
		Handler: routes(), ReadHeaderTimeout: headerTimeout, IdleTimeout: idleTimeout, MaxHeaderBytes: headerMost,
	}
	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

func listen(address, host string) (net.Listener, error) {
	listener, err := net.Listen("tcp", address)
	if err != nil || host == "" {
		return listener, err
	}
	only, err := netip.ParseAddr(host)
	return hostOnly{listener, only}, err
}

func routes() http.Handler {
	known := settings.New(&user.Database{Root: "/"})
	table := process.NewTable()
	table.Console = os.Stderr
	guest := &system.System{Root: "/"}
	memory := system.NewMemoryGuard(os.Stderr)
	memory.Note = func(pid int, name string, held, used, total int64) func() {
		kill := process.MemoryKill{PID: pid, Name: name, HeldBytes: held, UsedBytes: used, LimitBytes: total}
		return table.NoteMemoryKill("/", kill)
	}
	go memory.Run()
	mux := http.NewServeMux()
	atoll := &atollapi.API{
		Settings: known, Table: table, System: guest, Logins: settings.NewLogins(known, table),
		Hooks:  &hooks.Runner{Root: "/", Table: table, Settings: known, Console: os.Stderr},
		Memory: memory, Console: os.Stderr,
	}
	atoll.Register(mux)
	e2b := &envd.API{Settings: known, Table: table, System: guest}
	e2b.Register(mux)
	return mux
}
