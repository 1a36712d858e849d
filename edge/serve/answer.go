package serve

import "net/http"

// answer passes a response on as it came: no header is added to it.
type answer struct {
	http.ResponseWriter
	begun  bool
	status int         // 0: it has not begun
	bytes  int64       // of its body
	last   func() bool // whether the guest's connection is to end with it
	isLast bool
}

// WriteHeader begins the response.
func (a *answer) WriteHeader(status int) {
	if status >= http.StatusOK || status == http.StatusSwitchingProtocols {
		a.begun, a.status = true, status
		for _, name := range []string{"Date", "Content-Type"} {
			if _, ok := a.Header()[name]; !ok {
				a.Header()[name] = nil
			}
		}
		if a.last != nil && status != http.StatusSwitchingProtocols && a.last() {
			a.isLast = true
			a.Header().Set("Connection", "close")
		}
	}
	a.ResponseWriter.WriteHeader(status)
}

// Write passes on a piece of the body.
func (a *answer) Write(piece []byte) (int, error) {
	count, err := a.ResponseWriter.Write(piece)
	a.bytes += int64(count)
	return count, err
}

// Unwrap is for http.ResponseController.
func (a *answer) Unwrap() http.ResponseWriter { return a.ResponseWriter }
