package seen

import "sync/atomic"

const (
	roomBytes = 64 << 20
	// No sandbox takes all the room, so that a flood of one refuses nobody else.
	shares = 8
)

// Room is the memory for the lines of all sandboxes that nobody has taken yet.
type Room struct {
	most, share int64
	used        atomic.Int64
}

// NewRoom makes the room of a home.
func NewRoom() *Room { return RoomOf(roomBytes) }

// RoomOf makes one of so many bytes.
func RoomOf(bytes int64) *Room { return &Room{most: bytes, share: bytes / shares} }

func (r *Room) isFull() bool { return r.used.Load() >= r.most }
