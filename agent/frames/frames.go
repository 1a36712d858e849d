// Package frames writes the typed, length-prefixed rows of which the agent's streams consist.
package frames

import (
	"encoding/binary"
	"encoding/json"
	"net/http"
	"sync"
)

// MediaType is the content type of a stream of frames.
const MediaType = "application/vnd.atoll.frames"

// MaxPayload is the most bytes that a frame carries.
const MaxPayload = 65_536

const headerBytes = 5

// The types of frames.
const (
	Start    byte = 's'
	Stdout   byte = 'o'
	Stderr   byte = 'e'
	Terminal byte = 't'
	Watch    byte = 'w'
	Match    byte = 'm'
	Alive    byte = 'k'
	End      byte = 'x'
)

// Buffer has room for one frame: its header and then its payload.
type Buffer [headerBytes + MaxPayload]byte

// Payload is where the payload of the frame goes.
func (b *Buffer) Payload() []byte { return b[headerBytes:] }

var buffers = sync.Pool{New: func() any { return new(Buffer) }}

// Take gets a buffer, and Give hands it back.
func Take() *Buffer { return buffers.Get().(*Buffer) }

// Give hands a buffer back for others to use.
func Give(buffer *Buffer) { buffers.Put(buffer) }

// Writer writes frames into an answer. It is not safe for concurrent use.
type Writer struct {
	out   http.ResponseWriter
	flush http.Flusher
}

// NewWriter starts the answer.
func NewWriter(out http.ResponseWriter) *Writer {
	flush, _ := out.(http.Flusher)
	out.Header().Set("Content-Type", MediaType)
	out.WriteHeader(http.StatusOK)
	return &Writer{out: out, flush: flush}
}

// Send writes the frame whose payload of that many bytes already lies in the buffer.
func (w *Writer) Send(kind byte, buffer *Buffer, payload int) error {
	buffer[0] = kind
	binary.BigEndian.PutUint32(buffer[1:], uint32(payload))
	_, err := w.out.Write(buffer[:headerBytes+payload])
	return err
}

// SendJSON writes a frame that holds a value.
func (w *Writer) SendJSON(kind byte, value any) error {
	payload, err := json.Marshal(value)
	if err != nil {
		return err
	}
	return w.send(kind, payload)
}

// SendRaw writes a frame with such a payload.
func (w *Writer) SendRaw(kind byte, payload []byte) error { return w.send(kind, payload) }

// SendAlive writes the frame that says nothing.
func (w *Writer) SendAlive() error { return w.send(Alive, nil) }

func (w *Writer) send(kind byte, payload []byte) error {
	frame := make([]byte, headerBytes, headerBytes+len(payload))
	frame[0] = kind
	binary.BigEndian.PutUint32(frame[1:], uint32(len(payload)))
	_, err := w.out.Write(append(frame, payload...))
	return err
}

// Flush hands what was written to the network.
func (w *Writer) Flush() {
	if w.flush != nil {
		w.flush.Flush()
	}
}
