// Package envd serves the protocol of E2B's guest agent: Connect procedures with the JSON codec, and plain HTTP.
//
// Tokens and signatures are checked where strangers ask, by the server's gateway: only the host reaches the agent.
package envd

import (
	"net/http"

	"atoll/agent/fault"
	"atoll/agent/files"
	"atoll/agent/process"
	"atoll/agent/settings"
	"atoll/agent/system"
	"atoll/agent/user"
)

// API serves the protocol.
type API struct {
	Settings *settings.Settings
	Table    *process.Table
	System   *system.System

	watchers watchers
	meter    meter
}

// Register enters the routes.
func (a *API) Register(mux *http.ServeMux) {
	procedures := map[string]http.HandlerFunc{
		"/process.Process/List":        unary(a.list),
		"/process.Process/Start":       streaming(a.start),
		"/process.Process/Connect":     streaming(a.connect),
		"/process.Process/Update":      unary(a.update),
		"/process.Process/StreamInput": streaming(a.streamInput),
		"/process.Process/SendInput":   unary(a.sendInput),
		"/process.Process/SendSignal":  unary(a.sendSignal),
		"/process.Process/CloseStdin":  unary(a.closeStdin),

		"/filesystem.Filesystem/Stat":             unary(a.stat),
		"/filesystem.Filesystem/MakeDir":          unary(a.makeDir),
		"/filesystem.Filesystem/Move":             unary(a.move),
		"/filesystem.Filesystem/ListDir":          unary(a.listDir),
		"/filesystem.Filesystem/Remove":           unary(a.remove),
		"/filesystem.Filesystem/WatchDir":         streaming(a.watchDir),
		"/filesystem.Filesystem/CreateWatcher":    unary(a.createWatcher),
		"/filesystem.Filesystem/GetWatcherEvents": unary(a.getWatcherEvents),
		"/filesystem.Filesystem/RemoveWatcher":    unary(a.removeWatcher),
	}
	for path, serve := range procedures {
		mux.Handle("POST "+path, open(serve))
		mux.Handle("OPTIONS "+path, open(preflight))
	}
	for _, path := range []string{"/health", "/metrics", "/envs", "/files", "/files/compose"} {
		mux.Handle("OPTIONS "+path, open(preflight))
	}
	mux.Handle("GET /health", open(a.health))
	mux.Handle("GET /metrics", open(a.metrics))
	mux.Handle("GET /envs", open(func(w http.ResponseWriter, _ *http.Request) {
		answer(w, http.StatusOK, a.Settings.Env())
	}))
	mux.Handle("GET /files", open(a.download))
	mux.Handle("POST /files", open(a.upload))
	mux.Handle("POST /files/compose", open(a.compose))
}

// open lets browsers of any origin ask.
func open(serve http.HandlerFunc) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Access-Control-Allow-Origin", "*")
		w.Header().Set("Access-Control-Expose-Headers", "*")
		serve(w, r)
	})
}

func preflight(w http.ResponseWriter, r *http.Request) {
	header := w.Header()
	header.Set("Access-Control-Allow-Methods", "GET, HEAD, POST, PUT, PATCH, DELETE")
	if asked := r.Header.Get("Access-Control-Request-Headers"); asked != "" {
		header.Set("Access-Control-Allow-Headers", asked)
	}
	header.Set("Access-Control-Max-Age", "7200")
	w.WriteHeader(http.StatusNoContent)
}

type httpError struct {
	Code    int    `json:"code"`
	Message string `json:"message"`
}

func answerHTTP(w http.ResponseWriter, status int, message string) {
	answer(w, status, httpError{status, message})
}

func answerFault(w http.ResponseWriter, err error) {
	f := fault.Of(err)
	switch f.Code {
	case fault.UserUnknown:
		answerHTTP(w, http.StatusUnauthorized, f.Message)
	case fault.NoSpace:
		answerHTTP(w, http.StatusInsufficientStorage, "not enough disk space")
	case fault.IsADirectory, fault.NotADirectory:
		answerHTTP(w, http.StatusBadRequest, f.Message)
	default:
		answerHTTP(w, f.Code.Status(), f.Message)
	}
}

// account is the user of a request's Basic authorization.
func (a *API) account(r *http.Request) (*user.Account, error) {
	name, _, _ := r.BasicAuth()
	return a.named(name)
}

func (a *API) named(name string) (*user.Account, error) {
	account, err := a.Settings.Account(name)
	if err != nil {
		return nil, fault.New(fault.UserUnknown, "invalid username: '%s'", name)
	}
	return account, nil
}

func (a *API) work(r *http.Request) (files.Work, error) {
	account, err := a.account(r)
	if err != nil {
		return files.Work{}, err
	}
	return files.Work{Account: account, Users: a.Settings.Users}, nil
}

func (a *API) resolve(account *user.Account, path string) (string, error) {
	return files.Resolve(path, a.Settings.Cwd(account), account, a.Settings.Users)
}
