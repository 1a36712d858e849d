package control

import (
	"context"
	"errors"
	"io"
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"atoll/channel"
)

// dialing is a question that is open, and who is to answer it.
type dialing struct {
	t      *testing.T
	from   *Carrier
	other  *channel.Channel
	asked  Dial
	result chan dialled
	cancel context.CancelCauseFunc
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func pair(t *testing.T, kind int) (one, other *os.File) {
	t.Helper()
	ends, err := unix.Socketpair(unix.AF_UNIX, kind|unix.SOCK_CLOEXEC, 0)
	must(t, err)
	return os.NewFile(uintptr(ends[0]), "one"), os.NewFile(uintptr(ends[1]), "other")
}

func ask(t *testing.T) *dialing {
	t.Helper()
	one, other := pair(t, unix.SOCK_SEQPACKET)
	ours, err := channel.Open(one)
	must(t, err)
	theirs, err := channel.Open(other)
	must(t, err)
	t.Cleanup(func() { ours.Close(); theirs.Close() })
	made := &dialing{t: t, from: NewCarrier(ours), other: theirs, result: make(chan dialled, 1)}
	ctx, cancel := context.WithCancelCause(t.Context())
	made.cancel = cancel
	go func() {
		socket, err := made.from.Dial(ctx, "s", "c1", "")
		made.result <- dialled{socket, err}
	}()
	_, err = theirs.Receive(&made.asked)
	must(t, err)
	if made.asked.Op != "dial" || made.asked.Sandbox != "s" || made.asked.Connection != "c1" {
		t.Fatalf("it asks %+v", made.asked)
	}
	return made
}

func TestAConnectionIsGiven(t *testing.T) {
	d := ask(t)
	ours, theirs := pair(t, unix.SOCK_STREAM)
	d.from.Answer(&Message{ID: d.asked.ID}, theirs)
	got := <-d.result
	must(t, got.err)
	defer got.socket.Close()
	server, err := channel.Stream(ours)
	must(t, err)
	defer server.Close()
	if _, err := io.WriteString(server, "hello"); err != nil {
		t.Fatal(err)
	}
	heard := make([]byte, 5)
	if _, err := io.ReadFull(got.socket, heard); err != nil || string(heard) != "hello" {
		t.Errorf("it heard %q, %v", heard, err)
	}
}

func TestAConnectionIsNotGiven(t *testing.T) {
	cause := errors.New("the request is over")
	for name, c := range map[string]struct {
		does      func(*dialing)
		isRefused bool
		want      string
	}{
		"refused": {
			func(d *dialing) { d.from.Answer(&Message{ID: d.asked.ID, Error: "no rule", Refused: true}, nil) }, true, "no rule",
		},
		"failed": {
			func(d *dialing) { d.from.Answer(&Message{ID: d.asked.ID, Error: "timed out"}, nil) }, false, "timed out",
		},
		"nothing": {
			func(d *dialing) { d.from.Answer(&Message{ID: d.asked.ID}, nil) }, false, "the message came without a socket",
		},
		"gone": {func(d *dialing) { d.from.Gone() }, false, errCarrierGone.Error()},
		"over": {func(d *dialing) { d.cancel(cause) }, false, cause.Error()},
	} {
		t.Run(name, func(t *testing.T) {
			d := ask(t)
			c.does(d)
			got := <-d.result
			var refused *RefusedError
			if got.socket != nil || got.err == nil || got.err.Error() != c.want || errors.As(got.err, &refused) != c.isRefused {
				t.Errorf("it got %v", got.err)
			}
			if len(d.from.waiting) > 0 {
				t.Errorf("%d still wait", len(d.from.waiting))
			}
			// A socket that comes now is closed, and nobody is asked for another when the carrier is gone.
			ours, theirs := pair(t, unix.SOCK_STREAM)
			d.from.Answer(&Message{ID: d.asked.ID}, theirs)
			late, err := channel.Stream(ours)
			must(t, err)
			defer late.Close()
			if _, err := late.Read(make([]byte, 1)); err != io.EOF {
				t.Errorf("the late socket is open: %v", err)
			}
		})
	}
	d := ask(t)
	d.from.Gone()
	if _, err := d.from.Dial(t.Context(), "s", "c2", ""); err != errCarrierGone {
		t.Errorf("one that is gone is asked: %v", err)
	}
}

func TestACarrierIsToldToReset(t *testing.T) {
	d := ask(t)
	must(t, d.from.Reset("s", "c1"))
	var told Reset
	if _, err := d.other.Receive(&told); err != nil || told != (Reset{"reset", "s", "c1"}) {
		t.Errorf("it was told %+v, %v", told, err)
	}
	d.other.Close()
	if err := d.from.Reset("s", "c1"); err == nil {
		t.Error("one that is gone is told")
	}
	d.from.Gone()
	<-d.result
}
