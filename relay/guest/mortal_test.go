package guest

import (
	"io"
	"net"
	"testing"
)

// ended is a connection whose edge has ended the stream, or died. Nothing is known of that yet.
func ended(t *testing.T) (*world, *net.TCPConn) {
	t.Helper()
	w := newWorld(t, both)
	w.edge.lives, w.edge.asked = make(chan bool), make(chan struct{}, 1)
	guest := w.connect(named)
	edge := <-w.edge.taken
	exchange(t, guest, edge)
	edge.Close()
	return w, guest
}

func TestAnEndOfTheStreamIsToldIfTheEdgeMeansIt(t *testing.T) {
	w, guest := ended(t)
	isOpen(t, guest)
	w.edge.lives <- true
	if rest, err := io.ReadAll(guest); err != nil || len(rest) > 0 {
		t.Errorf("it ended with %q, %v", rest, err)
	}
}

func TestAnEdgeThatDiesEndsNoStream(t *testing.T) {
	w, guest := ended(t)
	w.edge.lives <- false
	isReset(t, guest)
}

func TestAGuestIsHeldWhileItIsNotKnownWhetherTheEdgeLives(t *testing.T) {
	w, guest := ended(t)
	<-w.edge.asked
	w.Hold()
	if _, ok := w.Kept(w.Flows()); ok {
		t.Error("a guest that is owed the end is kept")
	}
	w.edge.lives <- false
	isOpen(t, guest)
	w.Release()
	isReset(t, guest)
}

func TestAGuestThatEndsWaitsForNoEdge(t *testing.T) {
	w, guest := ended(t)
	w.Close()
	isReset(t, guest)
}
