package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"atoll/channel"
	"atoll/edge/control"
)

// relay is the other end of a channel to the edge that carries connections.
type relay struct {
	*channel.Channel
	t      *testing.T
	server string // where everything leads
}

// relay gives the edge a new relay.
func (c *child) relay(t *testing.T, server string) *relay {
	t.Helper()
	ours, theirs := pair(t, unix.SOCK_SEQPACKET)
	c.send(control.Message{Op: "relay"}, theirs)
	t.Cleanup(func() { ours.Close() })
	ours.SetDeadline(time.Now().Add(20 * time.Second))
	return &relay{channel.New(ours.(*net.UnixConn)), t, server}
}

// take hands a connection over, and returns the guest's end.
func (r *relay) take(id string) net.Conn {
	r.t.Helper()
	guest, theirs := pair(r.t, unix.SOCK_STREAM)
	defer theirs.Close()
	r.t.Cleanup(func() { guest.Close() })
	guest.SetDeadline(time.Now().Add(20 * time.Second))
	must(r.t, r.Send(control.Message{
		Op: "take", Sandbox: "s", Version: 1, Connection: id, Name: "a.x", Address: "192.0.2.1", Port: 80, Rules: []int{0},
	}, theirs))
	return guest
}

// dial answers the next question of the edge, which must be for a connection.
func (r *relay) dial(id string) {
	r.t.Helper()
	var asked control.Dial
	if _, err := r.Receive(&asked); err != nil || asked.Op != "dial" || asked.Connection != id || asked.Sandbox != "s" {
		r.t.Fatalf("the edge asks for %+v, %v", asked, err)
	}
	made, err := net.Dial("tcp", r.server)
	must(r.t, err)
	file, err := made.(*net.TCPConn).File()
	must(r.t, err)
	must(r.t, r.Send(control.Message{Op: "dialled", ID: asked.ID}, file))
	file.Close()
	made.Close()
}

func answerOn(t *testing.T, guest net.Conn) string {
	t.Helper()
	response, err := http.ReadResponse(bufio.NewReader(guest), nil)
	must(t, err)
	text, err := io.ReadAll(response.Body)
	must(t, err)
	return fmt.Sprint(response.StatusCode, " ", string(text))
}

const request = "GET / HTTP/1.1\r\nHost: a.x\r\nConnection: close\r\n\r\n"

func TestTheProgramOutlivesItsRelays(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(writer http.ResponseWriter, _ *http.Request) {
		io.WriteString(writer, "hello")
	}))
	server.Config.SetKeepAlivesEnabled(false) // else a later round would find a connection that is open
	defer server.Close()
	c := start(t, 64123, nil)
	c.hear() // what it tells is read
	var before []net.Conn
	for round := range 4 {
		r := c.relay(t, server.Listener.Addr().String())
		idle := r.take("c1")
		guest := r.take("c2")
		io.WriteString(guest, request)
		if round == 0 {
			c.policy(map[string]any{"action": "allow", "protocol": "http"})
		}
		if round == 2 {
			before = append(before, idle)
			continue // the next one replaces it
		}
		r.dial("c2")
		if got := answerOn(t, guest); got != "200 hello" {
			t.Errorf("the answer is %s", got)
		}
		if round == 1 {
			r.Close()
			if _, err := idle.Read(make([]byte, 1)); err != io.EOF {
				t.Errorf("without its relay, the connection ended with %v", err)
			}
		}
	}
	for _, each := range before {
		if _, err := each.Read(make([]byte, 1)); err != io.EOF {
			t.Errorf("the connection of the relay before ended with %v", err)
		}
	}
}

func TestARelayThatMakesNoSenseIsLeft(t *testing.T) {
	c := start(t, 64123, nil)
	for _, said := range []string{
		`{"op":"rules","sandbox":"s","connection":"gone"}`, `{"op":"policy","sandbox":"s"}`, `[`,
	} {
		ours, theirs := pair(t, unix.SOCK_SEQPACKET)
		c.send(control.Message{Op: "relay"}, theirs)
		if _, err := ours.Write([]byte(said)); err != nil {
			t.Fatal(err)
		}
		if strings.Contains(said, "rules") {
			ours.Close()
			continue // no fault
		}
		var told control.Log
		must(t, json.Unmarshal(c.receive(), &told))
		if told.Op != "log" || !strings.HasPrefix(told.Text, "the relay: ") {
			t.Errorf("%s: it told %+v", said, told)
		}
		if said == "[" {
			if _, err := ours.Read(make([]byte, 1)); err != io.EOF {
				t.Errorf("its channel ended with %v", err)
			}
		}
		ours.Close()
	}
	c.send(control.Message{Op: "relay"}, nil)
	var told control.Log
	must(t, json.Unmarshal(c.receive(), &told))
	if told.Text != "relay: the message came without a socket" {
		t.Errorf("it told %+v", told)
	}
}
