package splice

import "sync/atomic"

const (
	// RoomBytes bounds the data that all connections of one guest hold together, until their targets accept it.
	RoomBytes = 16 << 20
	// Each connection may hold this much even if others have used everything.
	leastBytes = 4 << 10
)

// Room is the rest of the data that the connections of one guest may still hold.
type Room struct{ left atomic.Int64 }

// NewRoom makes a room of this many bytes.
func NewRoom(bytes int64) *Room {
	room := &Room{}
	room.left.Store(bytes)
	return room
}

// piece is how much may be read now if none of it can be sent on.
func (r *Room) piece(most int) int {
	left := r.left.Load()
	if left >= int64(most) { // as nearly always
		return most
	}
	return int(max(leastBytes, left))
}

func (r *Room) take(bytes int) { r.left.Add(-int64(bytes)) }
func (r *Room) give(bytes int) { r.left.Add(int64(bytes)) }
