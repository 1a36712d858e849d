package guest

import (
	"context"
	"errors"
	"net"

	"atoll/relay/splice"
)

// Mortal is an end whose other side is a process that may die. The kernel then ends the stream as if all had been said.
type Mortal interface {
	splice.End
	// Lives tells whether the process has outlived its last bytes. It waits until that is clear.
	Lives(ctx context.Context) bool
}

var errDied = errors.New("the process behind the connection has died")

// heeding is a guest's end, which gets the end of the stream only if the other side meant it. Else the connection is to be
// reset.
type heeding struct {
	*net.TCPConn
	ctx    context.Context
	remote Mortal
}

func heedful(ctx context.Context, guest *net.TCPConn, remote splice.End) splice.End {
	if mortal, ok := remote.(Mortal); ok {
		return &heeding{guest, ctx, mortal}
	}
	return guest
}

// CloseWrite says that nothing more comes, unless the other side has died.
func (h *heeding) CloseWrite() error {
	if !h.remote.Lives(h.ctx) {
		return errDied
	}
	return h.TCPConn.CloseWrite()
}
