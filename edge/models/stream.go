package models

import (
	"bytes"
	"encoding/json"
)

// An event that is longer is passed on unread. The last event of OpenAI's responses has all of the answer in it.
const eventMost = 4 << 20

// Stream reads the events of an answer as they pass.
type Stream struct {
	dialect Dialect
	strips  bool

	line   []byte // has not ended
	data   []byte // of the event that has not ended
	held   []byte // its bytes, if it may be taken out
	isLong bool

	used   Usage
	isTold bool  // all of it is
	isDone bool  // nothing of the output comes any more
	pieces int64 // events with something of the output
	bytes  int64 // of the output
}

// NewStream reads a stream. If it strips, OpenAI's event that has only the usage is taken out.
func NewStream(dialect Dialect, strips bool) *Stream {
	return &Stream{dialect: dialect, strips: strips}
}

// Next takes the next bytes, and gives those that are passed on now.
func (s *Stream) Next(piece []byte) []byte {
	if !s.strips {
		s.read(piece, func([]byte) {}, func(bool) {})
		return piece
	}
	var out []byte
	s.read(piece, func(part []byte) {
		if s.held = append(s.held, part...); s.isLong {
			out, s.held = append(out, s.held...), nil
		}
	}, func(isOnlyUsage bool) {
		if !isOnlyUsage {
			out = append(out, s.held...)
		}
		s.held = nil
	})
	return out
}

// Rest gives the bytes that were held when the stream has ended.
func (s *Stream) Rest() []byte {
	rest := s.held
	s.held = nil
	s.endLine()
	if isOnlyUsage := s.endEvent(); isOnlyUsage && s.strips {
		return nil
	}
	return rest
}

// read tells of all bytes, line by line, and of the end of each event.
func (s *Stream) read(piece []byte, pass func([]byte), end func(isOnlyUsage bool)) {
	for len(piece) > 0 {
		at := bytes.IndexByte(piece, '\n')
		if at < 0 {
			s.keep(piece)
			pass(piece)
			return
		}
		s.keep(piece[:at])
		pass(piece[:at+1])
		piece = piece[at+1:]
		if isBlank := s.endLine(); isBlank || s.isLong {
			end(s.endEvent())
		}
	}
}

// endLine reads a line whose end has come, and tells whether it is a blank one, which ends an event.
func (s *Stream) endLine() bool {
	line := bytes.TrimSuffix(s.line, []byte("\r"))
	if value, ok := bytes.CutPrefix(line, []byte("data:")); ok {
		s.data = append(append(s.data, bytes.TrimPrefix(value, []byte(" "))...), '\n')
	}
	s.line = s.line[:0]
	return len(line) == 0
}

// keep keeps a part of a line, unless the event is too long.
func (s *Stream) keep(part []byte) {
	if len(s.line)+len(s.data)+len(part) > eventMost {
		s.isLong, s.line, s.data = true, nil, nil
	}
	if !s.isLong {
		s.line = append(s.line, part...)
	}
}

// event is what is read of one.
type event struct {
	envelope
	Type  string          `json:"type"`
	Delta json.RawMessage `json:"delta"`
}

// endEvent reads the event whose end has come, and tells whether it has only the usage that was asked for.
func (s *Stream) endEvent() bool {
	data := s.data
	wasLong := s.isLong
	s.data, s.isLong = nil, false
	if wasLong {
		s.pieces++
		return false
	}
	if len(data) == 0 || data[0] != '{' {
		return false
	}
	var found event
	_ = json.Unmarshal(data, &found) // what cannot be read is not there
	if used, ok := found.used(s.dialect); ok {
		s.used = s.used.AtLeast(used)
		s.isTold = s.isTold || s.dialect == OpenAI || found.Type == "message_delta"
		s.isDone = s.isDone || found.isLast()
	}
	if size := textBytes(found.Delta) + textBytes(found.Choices); size > 0 {
		s.pieces++
		s.bytes += size
	}
	return found.isOnlyUsage()
}

// isLast tells whether an event with usage is the last one that has any: the answer is whole then.
func (e *event) isLast() bool {
	switch e.Type {
	case "message_delta", "response.completed", "response.incomplete", "response.failed":
		return true
	}
	return e.isOnlyUsage()
}

// textBytes counts the bytes of the texts in a value, without keys and without empty texts.
func textBytes(value json.RawMessage) int64 {
	var size int64
	for at := 0; at < len(value); at++ {
		if value[at] != '"' {
			continue
		}
		end := skipText(value, at)
		if next := skipSpace(value, end); next >= len(value) || value[next] != ':' {
			size += int64(end - at - 2)
		}
		at = end - 1
	}
	return size
}

// Usage is what the stream has told of it. It is false as long as that is not all.
func (s *Stream) Usage() (Usage, bool) { return s.used, s.isTold }

// IsDone tells whether the answer is whole. Some clients leave then, before the stream ends.
func (s *Stream) IsDone() bool { return s.isDone }

// OutputLeast is how many tokens of output have come for certain: each event has one at least.
func (s *Stream) OutputLeast() int64 { return max(s.used.Output, s.pieces, s.bytes/8) }

// Output is an estimate of the output that has come, which is rather too high.
func (s *Stream) Output() int64 { return max(s.used.Output, s.pieces, s.bytes/3) }
