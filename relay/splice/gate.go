package splice

import (
	"errors"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"atoll/policy"
	"atoll/relay/socket"
)

const (
	// A line that may become a request of HTTP, or may not, is sent on after this time without its end.
	patience = 100 * time.Millisecond
)

// Look is the result of a look at first bytes.
type Look struct {
	Passage policy.Passage // empty: more bytes are needed to tell
	Wanted  int            // then: how many from the beginning
	SendOn  bool           // then: they may be sent on after a moment, such as a line of text that has not ended
}

// Gate waits for the first bytes of a guest, which stay in the socket until the verdict.
//
// A line without its end is sent on after a moment, since some protocols send a word and wait. No server acts on a request
// without the end of its first line.
type Gate struct {
	// Read judges first bytes, at least one.
	Read func(first []byte) Look

	pump *pump // from the guest
	sent []byte
}

// wait returns the verdict. The error is of a deadline if the pump is held meanwhile.
func (g *Gate) wait() (policy.Passage, error) {
	var line *time.Timer
	defer func() {
		if line != nil {
			line.Stop()
		}
	}()
	g.waitFor(1)
	for seen := 0; ; {
		first, err := g.more(seen)
		switch {
		case errors.Is(err, os.ErrDeadlineExceeded) && line != nil && g.pump.resume():
			line = nil
			if err := g.sendOn(seen); errors.Is(err, errBetrayed) {
				return "", err
			} else if err != nil {
				return policy.Refuse, nil
			}
			seen = 0
			g.waitFor(1)
			continue
		case errors.Is(err, os.ErrDeadlineExceeded):
			return "", err
		case err != nil:
			return policy.Refuse, nil
		case len(first) == 0: // the guest sends nothing more, and may still receive
			return policy.PassOn, nil
		}
		seen = len(first)
		look := g.Read(append(g.sent[:len(g.sent):len(g.sent)], first...))
		if look.Passage != "" {
			g.waitFor(1)
			return look.Passage, nil
		}
		// The kernel reports the socket as readable when there is as much as that.
		g.waitFor(look.Wanted - len(g.sent))
		if look.SendOn && line == nil {
			line = time.AfterFunc(patience, g.pump.interrupt)
		}
	}
}

var errHalf = errors.New("the guest ended within its first words")

// more waits for more than what was seen. Nothing and no error: the guest has said nothing at all and sends no more.
func (g *Gate) more(seen int) ([]byte, error) {
	var buffer []byte
	count := 0
	var failure error
	err := g.pump.source.raw.Read(func(fd uintptr) bool {
		if buffer == nil {
			buffer = make([]byte, policy.FirstBytesMost)
		}
		count, failure = socket.Peek(int(fd), buffer)
		switch {
		case failure == unix.EAGAIN:
			failure, buffer = nil, nil // it may wait for long
			return false
		case failure != nil || count == 0 || count > seen:
			return true
		}
		if hasEnded(int(fd)) {
			failure = errHalf
			return true
		}
		return false
	})
	if err == nil {
		err = failure
	}
	return buffer[:max(count, 0)], err
}

// sendOn sends on what has come of a line so far.
func (g *Gate) sendOn(seen int) error {
	data := make([]byte, seen)
	var failure error
	err := g.pump.source.raw.Control(func(fd uintptr) {
		var count int
		count, failure = unix.Read(int(fd), data)
		data = data[:max(count, 0)]
	})
	if err = errors.Join(err, failure, g.pump.search.see(data)); err != nil {
		return err
	}
	g.sent = append(g.sent, data...)
	err = g.pump.target.raw.Control(func(fd uintptr) {
		var count int
		if count, failure = unix.Write(int(fd), data); failure == nil && count < len(data) {
			failure = unix.EAGAIN
		}
	})
	return errors.Join(err, failure)
}

func (g *Gate) waitFor(bytes int) {
	g.pump.source.ask(func(fd int) {
		_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVLOWAT, max(1, bytes))
	})
}
