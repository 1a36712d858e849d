package splice

import (
	"errors"
	"sync"

	"atoll/relay/socket"
)

// SearchedMost is how much of what a guest says is searched.
const SearchedMost = 1 << 20

const searchedAtOnce = 64 << 10

// Finder is told of a stream piece by piece, and tells whether something ended in it that may not leave.
type Finder interface{ Next(piece []byte) bool }

var errBetrayed = errors.New("what may not leave was about to")

// search looks at bytes while they are still in the socket. So the piece in which something is found never leaves it.
type search struct {
	finder Finder
	left   int // to be searched
	clean  int // searched, and still in the socket
}

func searchFor(finder Finder) *search {
	if finder == nil {
		return nil
	}
	return &search{finder: finder, left: SearchedMost}
}

// isOn tells whether bytes may move only when they are clear.
func (s *search) isOn() bool { return s != nil && (s.left > 0 || s.clean > 0) }

var looking = sync.Pool{New: func() any { return new([searchedAtOnce]byte) }}

// clear gives how many bytes may be taken from a socket. It does not wait for them.
func (s *search) clear(fd int) (int, error) {
	if s.clean > 0 {
		return s.clean, nil
	}
	buffer := looking.Get().(*[searchedAtOnce]byte)
	defer looking.Put(buffer)
	count, err := socket.Peek(fd, buffer[:min(s.left, searchedAtOnce)])
	if err != nil {
		return 0, err
	}
	if err := s.see(buffer[:count]); err != nil {
		return 0, err
	}
	if s.clean = count; count == 0 { // the end of the stream
		return searchedAtOnce, nil
	}
	return count, nil
}

// see searches bytes that are about to leave.
func (s *search) see(piece []byte) error {
	if !s.isOn() {
		return nil
	}
	s.left -= len(piece)
	if s.finder.Next(piece) {
		return errBetrayed
	}
	return nil
}

// passed notes how many bytes were taken.
func (s *search) passed(count int) {
	if s != nil {
		s.clean = max(0, s.clean-count)
	}
}
