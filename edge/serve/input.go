package serve

import (
	"io"
	"net/http"
	"sync"
	"sync/atomic"
)

// input is the body of a guest's request as it comes. Whatever sends it on may still read when the response is there.
type input struct {
	io.ReadCloser
	ended atomic.Bool // it was read to its end
	bytes atomic.Int64
	mu    sync.Mutex // held by who reads
	left  bool
}

func inputOf(in *http.Request) *input {
	found := &input{ReadCloser: in.Body}
	found.ended.Store(in.ContentLength == 0)
	return found
}

// Read gets the next piece.
func (i *input) Read(into []byte) (int, error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.left {
		return 0, http.ErrBodyReadAfterClose
	}
	count, err := i.ReadCloser.Read(into)
	i.bytes.Add(int64(count))
	if err == io.EOF {
		i.ended.Store(true)
	}
	return count, err
}

// leave waits for who reads, and has nobody read any more.
func (i *input) leave() {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.left = true
}
