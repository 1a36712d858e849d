package envd

import (
	"net/http"
	"os"
)

// A look that the guest's kernel never answers keeps a thread for good, so there is one at most.
var looking = make(chan struct{}, 1)

// health says that the guest works. That includes its files, which every command needs: where its kernel hangs over them
// there is no answer.
func (*API) health(w http.ResponseWriter, r *http.Request) {
	select {
	case looking <- struct{}{}:
	case <-r.Context().Done():
		return
	}
	seen := make(chan struct{})
	go func() {
		defer func() { <-looking }()
		_, _ = os.Lstat("/etc/passwd")
		close(seen)
	}()
	select {
	case <-seen:
		w.WriteHeader(http.StatusNoContent)
	case <-r.Context().Done():
	}
}
