package home

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"atoll/channel"
	"atoll/edge/seen"
	"atoll/relay/control"
)

// neighbour is a link whose guest may reach a port of another sandbox.
func neighbour(w *world, by *client) (link *line, to netip.AddrPort) {
	w.t.Helper()
	link = by.add("one")
	by.rules("one", `{"own":{"rules":[{"action":"allow","hosts":["db.sandbox.atoll.internal"],"ports":[5432]}]}}`)
	return link, netip.AddrPortFrom(by.knows("one", "db.sandbox.atoll.internal"), 5432)
}

func TestAnotherSandboxIsReachedByTheOwner(t *testing.T) {
	w := newWorld(t, nil)
	owner := w.owner()
	link, to := neighbour(w, owner)
	server := listen(t)
	guest := w.visit(link, to)
	asked := owner.hears(of("reach"))
	if asked.Link != "one" || asked.Ref != "db" || asked.Port != 5432 {
		t.Errorf("asked for %+v", asked)
	}
	dialled, err := net.Dial("tcp", server.Addr().String())
	must(t, err)
	file, err := dialled.(*net.TCPConn).File()
	must(t, err)
	for range 2 { // the second one is closed
		must(t, owner.Send(control.Message{Op: "reached", ID: asked.ID}, file))
	}
	file.Close()
	dialled.Close()
	exchange(t, guest, accept(t, server))
}

func TestWhyASandboxIsNotReachedIsToldToTheOwnerAlone(t *testing.T) {
	w := newWorld(t, nil)
	owner := w.owner()
	link, to := neighbour(w, owner)
	datagrams, err := net.ListenUDP("udp", nil)
	must(t, err)
	defer datagrams.Close()
	socket, err := datagrams.File()
	must(t, err)
	defer socket.Close()
	for _, each := range []struct {
		refusal string
		files   []*os.File
		want    string
	}{
		{"it is suspended", nil, "it is suspended"},
		{"", nil, "came with 0"},
		{"", []*os.File{socket, socket}, "came with 2"},
		{"", []*os.File{socket}, "not a TCP connection"},
	} {
		guest := w.visit(link, to)
		asked := owner.hears(of("reach"))
		must(t, owner.Send(control.Message{Op: "reached", ID: asked.ID, Error: each.refusal}, each.files...))
		isReset(t, guest)
		told := owner.decision(func(told seen.Entry) bool { return strings.Contains(told.Reason, each.want) })
		if !strings.HasPrefix(told.Reason, "the sandbox is not reached: ") || told.Action != "deny" || *told.Rule != 0 {
			t.Errorf("told %+v", told)
		}
	}
}

func TestAReachWaitsForAnOwner(t *testing.T) {
	w := newWorld(t, nil)
	first := w.owner()
	link, to := neighbour(w, first)
	guest := w.visit(link, to)
	asked := first.hears(of("reach"))
	next := w.owner() // the first one has answered nothing
	if again := next.hears(of("reach")); again.ID != asked.ID || again.Ref != "db" {
		t.Errorf("asked for %+v", again)
	}
	must(t, next.do(control.Message{Op: "cut", Link: "one"}, nil))
	isReset(t, guest)
	eventually(t, "nobody waits any more", func() bool {
		w.events.mu.Lock()
		defer w.events.mu.Unlock()
		return len(w.events.reaches) == 0 && len(w.events.untold) == 0
	})
}

// proxying serves one connection after the other as an HTTP proxy that leads all of them to a server.
func proxying(t *testing.T, server net.Addr, status int) (at *net.TCPListener, asked chan string) {
	t.Helper()
	at, asked = listen(t), make(chan string, 8)
	go func() {
		for {
			conn, err := at.AcceptTCP()
			if err != nil {
				return
			}
			request, err := http.ReadRequest(bufio.NewReader(conn))
			if err != nil {
				return
			}
			asked <- request.Host
			fmt.Fprintf(conn, "HTTP/1.1 %d x\r\n\r\n", status)
			remote, err := net.Dial("tcp", server.String())
			if err != nil || status != http.StatusOK {
				conn.Close()
				continue
			}
			go io.Copy(remote, conn)
			go io.Copy(conn, remote)
		}
	}()
	return at, asked
}

func proxied(at *net.TCPListener, ceiling string) string {
	return fmt.Sprintf(
		`{"own":{"rules":[{"action":"allow","hosts":["api.example.com"],"ports":[22]}],"proxy":{"hosts":[]},
			"passthrough":["api.example.com"]},
			"proxy":{"url":"http://%s","hosts":[],"addresses":["127.0.0.1/32"]},"ceiling":%s}`, at.Addr(), ceiling,
	)
}

func TestAProxyConnectsForAGuest(t *testing.T) {
	w := newWorld(t, nil)
	owner := w.owner()
	link, server := owner.add("one"), listen(t)
	at, asked := proxying(t, server.Addr(), http.StatusOK)
	owner.rules("one", proxied(at, "null"))
	to := netip.AddrPortFrom(owner.knows("one", "api.example.com"), 22)
	guest := w.visit(link, to)
	exchange(t, guest, accept(t, server))
	if host := <-asked; host != "api.example.com:22" {
		t.Errorf("the proxy is asked for %q", host)
	}
	owner.rules("one", proxied(at, "null")) // the same again ends nothing
	if _, err := guest.Write([]byte("more")); err != nil {
		t.Error(err)
	}
	var answer struct{ Flows []control.Flow }
	must(t, owner.do(control.Message{Op: "ask", Link: "one", What: "flows"}, &answer))
	if len(answer.Flows) != 1 {
		t.Error("the same proxy again ends a connection")
	}
	other, _ := proxying(t, server.Addr(), http.StatusForbidden)
	owner.rules("one", proxied(other, "null"))
	isReset(t, guest)
	w.isRefused(link, to)
	told := owner.decision(func(each seen.Entry) bool { return strings.HasPrefix(each.Reason, "the upstream proxy ") })
	if !strings.HasPrefix(told.Reason, "the upstream proxy does not connect: ") || told.Host != "api.example.com" {
		t.Errorf("told %+v", told)
	}
	owner.rules("one", proxied(at, `{"rules":[{"action":"allow","hosts":["api.example.com"],"ports":[22]}]}`))
	w.isRefused(link, to)
	owner.decision(func(each seen.Entry) bool {
		return strings.Contains(each.Reason, "the team's ceiling does not let it be used")
	})
}

func TestAnotherCeilingIsAnotherWayToAProxy(t *testing.T) {
	var rules control.Rules
	must(t, json.Unmarshal([]byte(`{"proxy":{"url":"http://192.0.2.1:80"}}`), &rules))
	var found proxy
	keys := map[string]bool{}
	for _, ceiling := range []*control.Document{nil, {}, {Passthrough: []string{"a.x"}}} {
		rules.Ceiling = ceiling
		for range 2 {
			found.set(&rules, nil)
			keys[found.key] = true
		}
	}
	found.set(&control.Rules{}, nil)
	if keys[""] || len(keys) != 3 || found.key != "" {
		t.Errorf("the keys are %v", keys)
	}
}

func TestWhatIsNoLinkIsRefused(t *testing.T) {
	w := newWorld(t, nil)
	owner := w.owner()
	link := owner.add("one")
	good := func() []*os.File { return link.files(t) }
	connected, err := net.Dial("tcp", link.guests.Addr().String())
	must(t, err)
	defer connected.Close()
	stream, err := connected.(*net.TCPConn).File()
	must(t, err)
	defer stream.Close()
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	must(t, err)
	local := os.NewFile(uintptr(pair[0]), "local")
	defer local.Close()
	defer unix.Close(pair[1])
	for what, change := range map[string]func([]*os.File) []*os.File{
		"a file for a listener":   func(all []*os.File) []*os.File { return []*os.File{all[3], all[1], all[2], all[3]} },
		"a stream for a listener": func(all []*os.File) []*os.File { return []*os.File{stream, all[1], all[2], all[3]} },
		"a pair for datagrams":    func(all []*os.File) []*os.File { return []*os.File{all[0], local, all[2], all[3]} },
		"a socket for the names":  func(all []*os.File) []*os.File { return []*os.File{all[0], all[1], all[2], all[0]} },
		"one too few":             func(all []*os.File) []*os.File { return all[:3] },
		"none":                    func(all []*os.File) []*os.File { return nil },
	} {
		files := good()
		if err := owner.do(control.Message{Op: "link", Link: "two"}, nil, change(files)...); err == nil {
			t.Errorf("%s is a link", what)
		}
		channel.CloseAll(files)
	}
	files := good()
	defer channel.CloseAll(files)
	for _, id := range []string{"one", ""} {
		if owner.do(control.Message{Op: "link", Link: id}, nil, files...) == nil {
			t.Errorf("%q is a link again", id)
		}
	}
	if len(w.links) != 1 {
		t.Errorf("there are %d links", len(w.links))
	}
}

func TestWhatMeansNothingIsAnsweredOrLogged(t *testing.T) {
	w := newWorld(t, nil)
	owner := w.owner()
	owner.add("one")
	file, err := channel.Sealed("content")
	must(t, err)
	defer file.Close()
	for _, each := range []struct {
		message control.Message
		files   []*os.File
	}{
		{control.Message{Op: "fly", Link: "one"}, nil}, {control.Message{Op: "hold", Link: "two"}, nil}, {control.Message{}, nil},
		{control.Message{Op: "hold", Link: "one"}, []*os.File{file}}, {control.Message{Op: "settings"}, nil},
		{control.Message{Op: "settings"}, []*os.File{file}}, {control.Message{Op: "settings"}, []*os.File{file, file}},
		{control.Message{Op: "rules", Link: "two"}, []*os.File{file}}, {control.Message{Op: "rules", Link: "one"}, nil},
		{control.Message{Op: "take_over", Link: "one"}, []*os.File{file}}, {control.Message{Op: "edge"}, nil},
		{control.Message{Op: "edge"}, []*os.File{file}}, {control.Message{Op: "ask", Link: "two", What: "flows"}, nil},
		{control.Message{Op: "ask", Link: "one", What: "kept"}, nil}, {control.Message{Op: "unlink", Link: "two"}, nil},
	} {
		if owner.do(each.message, nil, each.files...) == nil {
			t.Errorf("%+v with %d descriptors is done", each.message, len(each.files))
		}
		must(t, owner.Send(each.message, each.files...))
		owner.hears(of("log"))
	}
	must(t, owner.with(control.Message{Op: "settings"}, map[string]any{"proxy_patience_ms": 500}))
	if owner.with(control.Message{Op: "settings"}, map[string]any{"proxy_patience_ms": -1}) == nil {
		t.Error("a patience may be negative")
	}
	other := w.connect()
	must(t, other.Send("no message"))
	<-other.gone
}
