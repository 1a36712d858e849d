package main

import (
	"bufio"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"atoll/channel"
	"atoll/edge/control"
)

// guardian is a process for which an edge stays.
func guardian(t *testing.T) (*exec.Cmd, *os.File) {
	t.Helper()
	process := exec.Command("sleep", "1000")
	must(t, process.Start())
	t.Cleanup(func() { process.Process.Kill(); process.Wait() })
	fd, err := unix.PidfdOpen(process.Process.Pid, unix.PIDFD_NONBLOCK)
	must(t, err)
	return process, os.NewFile(uintptr(fd), "guardian")
}

// talking is a guest that speaks TLS through the edge, to a server that tells which secret came.
func talking(t *testing.T, c *child) func(body string) string {
	t.Helper()
	conn := tls.Client(c.take("one", "a.x", 443), &tls.Config{RootCAs: c.trust, ServerName: "a.x"})
	t.Cleanup(func() { conn.Close() })
	reader := bufio.NewReader(conn)
	return func(body string) string {
		conn.SetDeadline(time.Now().Add(20 * time.Second))
		fmt.Fprintf(conn, "POST / HTTP/1.1\r\nHost: a.x\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
		response, err := http.ReadResponse(reader, nil)
		if err != nil {
			return err.Error()
		}
		text, err := io.ReadAll(response.Body)
		if err != nil {
			return err.Error()
		}
		return string(text)
	}
}

// served is an edge with a policy, a relay, and a server behind it.
func servedBy(t *testing.T) *child {
	t.Helper()
	certificate, key := authority(t)
	c := start(t, 64123, certificate)
	pairOf, err := tls.X509KeyPair(certificate, key)
	must(t, err)
	listener, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{Certificates: []tls.Certificate{pairOf}})
	must(t, err)
	server := &http.Server{Handler: http.HandlerFunc(func(writer http.ResponseWriter, request *http.Request) {
		body, _ := io.ReadAll(request.Body)
		fmt.Fprintf(writer, "%d %s", len(request.Header.Get("Authorization")), body)
	})}
	go server.Serve(listener)
	t.Cleanup(func() { server.Close() })
	c.servers["one"] = listener.Addr().String()
	c.carry()
	c.policy(rule)
	return c
}

var rule = map[string]any{
	"action": "allow", "limit": map[string]any{"requests": 100, "per_s": 600},
	"inject": []map[string]string{{"secret": "gh", "into": "header", "key": "authorization", "format": "Bearer {}"}},
}

func TestConnectionsGoOnWithoutAnOwnerAndWithTheNext(t *testing.T) {
	c := servedBy(t)
	process, pidfd := guardian(t)
	c.send(control.Message{Op: "stay"}, pidfd)
	say := talking(t, c)
	if got := say("one"); got != "19 one" {
		t.Fatalf("with its owner: %s", got)
	}
	c.socket.Close()
	if got := say("two"); got != "19 two" {
		t.Fatalf("without an owner: %s", got)
	}
	if got := talking(t, c)("new"); got != "19 new" {
		t.Fatalf("a new connection without an owner: %s", got)
	}
	if known := c.own(); len(known) != 1 || known["s"] != 1 || c.welcome.Pair != "first" || c.welcome.Config != "one" {
		t.Fatalf("the next owner hears of %v, %+v", known, c.welcome)
	}
	told := c.hear()
	c.policy(rule) // the connections have rules of this version
	if got := say("three"); got != "19 three" {
		t.Fatalf("with the next owner: %s", got)
	}
	for count := 0; count < 3; { // of the first one, the first owner may have heard
		select {
		case message := <-told:
			if message["op"] == "seen" {
				for _, each := range message["entries"].([]any) {
					count += int(each.(map[string]any)["count"].(float64))
				}
			}
		case <-time.After(10 * time.Second):
			t.Fatalf("the next owner hears of %d requests", count)
		}
	}
	// Without a guardian it ends with its owner: the test waits for that at its end.
	process.Process.Kill()
}

func TestANewOwnerCutsTheOneBeforeOff(t *testing.T) {
	c := servedBy(t)
	say := talking(t, c)
	if got := say("one"); got != "19 one" {
		t.Fatalf("with its owner: %s", got)
	}
	before := c.socket
	if known := c.own(); known["s"] != 1 {
		t.Errorf("it knows %v", known)
	}
	before.SetDeadline(time.Now().Add(10 * time.Second))
	for {
		if _, err := before.Read(make([]byte, 64<<10)); err != nil {
			break
		}
	}
	before.Close()
	if got := say("on"); got != "19 on" {
		t.Errorf("with the next owner: %s", got)
	}
}

func TestAnEdgeEndsWithWhoWasToOwnIt(t *testing.T) {
	c := start(t, 64123, nil)
	process, pidfd := guardian(t)
	c.send(control.Message{Op: "stay"}, pidfd)
	c.send(control.Message{Op: "stay"}, nil) // what is no process changes nothing
	var told control.Log
	must(t, json.Unmarshal(c.receive(), &told))
	if told.Text != "stay: the message came without a process" {
		t.Errorf("it told %+v", told)
	}
	c.socket.Close()
	select {
	case err := <-c.ended:
		t.Fatalf("it ended: %v", err)
	case <-time.After(300 * time.Millisecond):
	}
	c.own()
	c.socket.Close()
	process.Process.Kill()
	process.Wait()
}

func TestWhoDoesNotSayHelloIsNoOwner(t *testing.T) {
	c := start(t, 64123, nil)
	owner := c.socket
	for _, first := range []any{
		control.Message{Op: "policy", Sandbox: "s"}, control.Message{Op: "hello", Protocol: control.Protocol + 1}, "hello",
	} {
		conn, err := net.DialUnix("unixpacket", nil, &net.UnixAddr{Name: c.path, Net: "unixpacket"})
		must(t, err)
		c.socket = conn
		c.send(first, nil)
		conn.SetDeadline(time.Now().Add(10 * time.Second))
		for {
			var said control.Welcome
			buffer := make([]byte, 4096)
			count, err := conn.Read(buffer)
			if err != nil {
				break
			}
			if json.Unmarshal(buffer[:count], &said) != nil || said.Error == "" {
				t.Errorf("it says %s", buffer[:count])
			}
		}
		conn.Close()
	}
	c.socket = owner
	c.send(control.Message{Op: "no such"}, nil)
	var told control.Log
	must(t, json.Unmarshal(c.receive(), &told))
	if told.Text != "no such: there is no message no such" {
		t.Errorf("its owner hears %+v", told)
	}
}

func TestAnotherUserMayNotConnect(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can be another user")
	}
	c := start(t, 64123, nil)
	must(t, os.Chmod(c.path, 0o777))
	// The edge's own user is another one too: it was root when it started.
	for _, user := range []int{64123, 65534} {
		conn := c.connectAs(user)
		conn.SetDeadline(time.Now().Add(10 * time.Second))
		if _, err := conn.Read(make([]byte, 1)); err != io.EOF {
			t.Errorf("user %d hears %v", user, err)
		}
		conn.Close()
		var told control.Log
		must(t, json.Unmarshal(c.receive(), &told))
		if want := fmt.Sprintf("user %d may not talk to the edge: operation not permitted", user); told.Text != want {
			t.Errorf("its owner hears %+v", told)
		}
	}
}

// connectAs has one thread be another user for a moment.
func (c *child) connectAs(user int) net.Conn {
	c.t.Helper()
	socket, err := unix.Socket(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	must(c.t, err)
	directory, err := unix.Open(filepath.Dir(c.path), unix.O_PATH|unix.O_CLOEXEC, 0) // which others may not pass
	must(c.t, err)
	defer unix.Close(directory)
	must(c.t, os.Chmod(filepath.Dir(c.path), 0o777))
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	become := func(user int) {
		keep := ^uintptr(0)
		if _, _, errno := unix.RawSyscall(unix.SYS_SETRESUID, keep, uintptr(user), keep); errno != 0 {
			c.t.Fatal(errno)
		}
	}
	where := &unix.SockaddrUnix{Name: fmt.Sprintf("/proc/self/task/%d/fd/%d/%s", unix.Gettid(), directory, filepath.Base(c.path))}
	become(user)
	err = unix.Connect(socket, where)
	become(0)
	must(c.t, err)
	made, err := channel.Stream(os.NewFile(uintptr(socket), "another user's"))
	must(c.t, err)
	return made
}

func TestAConfigurationThatCannotBeUsedEndsTheEdge(t *testing.T) {
	c := launch(t, 64123)
	c.own()
	c.send(control.Message{Op: "policy", Sandbox: "s"}, nil)
	c.send(control.Message{Op: "config"}, memfd(t, map[string]string{"ca_certificate": "none"}))
	var told control.Log
	must(t, json.Unmarshal(c.receive(), &told))
	if told.Op != "log" {
		t.Errorf("it told %+v", told)
	}
	select {
	case err := <-c.ended:
		if err == nil {
			t.Error("it ended well")
		}
	case <-time.After(10 * time.Second):
		t.Error("it goes on")
	}
}

func TestAnOwnerThatDoesNotReadIsReplaced(t *testing.T) {
	c := servedBy(t)
	say := talking(t, c)
	stopped := c.socket
	for range 5000 { // more than its socket holds is told about these
		c.send(control.Message{Op: "no such"}, nil)
	}
	if got := say("on"); got != "19 on" {
		t.Fatalf("beside an owner that does not read: %s", got)
	}
	if known := c.own(); known["s"] != 1 {
		t.Errorf("the next owner hears of %v", known)
	}
	stopped.Close()
	c.policy(rule)
	told := c.hear()
	for end := time.After(10 * time.Second); ; {
		select {
		case message := <-told:
			if message["op"] == "spent" { // what was counted before it came
				return
			}
		case <-end:
			t.Fatal("the next owner is not told what was counted")
		}
	}
}
