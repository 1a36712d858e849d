// Package atollapi serves the /atoll/ routes of spec/atoll.md.
package atollapi

import (
	"encoding/json"
	"io"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"

	"atoll/agent/fault"
	"atoll/agent/files"
	"atoll/agent/hooks"
	"atoll/agent/process"
	"atoll/agent/service"
	"atoll/agent/settings"
	"atoll/agent/system"
	"atoll/agent/user"
)

const bodyMost = 16 << 20

// API serves the routes.
type API struct {
	Settings *settings.Settings
	Logins   *settings.Logins
	Table    *process.Table
	System   *system.System
	Hooks    *hooks.Runner
	Memory   *system.MemoryGuard
	Console  io.Writer // the sandbox's log; nil tells nobody

	services service.Services
	waiting  atomic.Int64 // clients that wait for a program's end
	initMu   sync.Mutex   // one init at a time
}

type handler func(http.ResponseWriter, *http.Request) error

// Register enters the routes.
func (a *API) Register(mux *http.ServeMux) {
	a.services.Begin, a.services.Console = a.beginService, a.Console
	for pattern, serve := range map[string]handler{
		"POST /atoll/init":                   a.init,
		"POST /atoll/warm":                   a.warm,
		"POST /atoll/flush":                  a.flush,
		"POST /atoll/before-suspend":         a.beforeSuspend,
		"POST /atoll/free-memory":            a.freeMemory,
		"POST /atoll/processes":              a.start,
		"GET /atoll/processes":               a.list,
		"GET /atoll/processes/{pid}/output":  a.output,
		"POST /atoll/processes/{pid}/stdin":  a.stdin,
		"POST /atoll/processes/{pid}/signal": a.signal,
		"POST /atoll/processes/{pid}/resize": a.resize,
		"GET /atoll/file":                    a.readFile,
		"PUT /atoll/file":                    a.writeFile,
		"POST /atoll/files":                  a.files,
		"PUT /atoll/files":                   a.writeFiles,
		"POST /atoll/search":                 a.search,
		"GET /atoll/tree":                    a.readTree,
		"PUT /atoll/tree":                    a.writeTree,
		"GET /atoll/watch":                   a.watch,
		"GET /atoll/stats":                   a.stats,
		"POST /atoll/loopback":               a.loopback,
		"GET /atoll/services":                a.listServices,
		"PUT /atoll/services/{name}":         a.putService,
		"DELETE /atoll/services/{name}":      a.removeService,
		"POST /atoll/services/{name}/{verb}": a.moveService,
		"GET /atoll/services/{name}/output":  a.serviceOutput,
	} {
		mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
			if err := serve(w, r); err != nil {
				answerFault(w, err)
			}
		})
	}
	mux.HandleFunc("/atoll/", func(w http.ResponseWriter, r *http.Request) {
		answer(w, http.StatusNotFound, faultBody{fault.Invalid, "there is no route " + r.Method + " " + r.URL.Path})
	})
}

type faultBody struct {
	Code    fault.Code `json:"code"`
	Message string     `json:"message"`
}

func answerFault(w http.ResponseWriter, err error) {
	f := fault.Of(err)
	answer(w, f.Code.Status(), faultBody{f.Code, f.Message})
}

func answer(w http.ResponseWriter, status int, body any) {
	text, err := json.Marshal(body)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Length", strconv.Itoa(len(text)))
	w.WriteHeader(status)
	// A client that left needs no answer.
	_, _ = w.Write(text)
}

func done(w http.ResponseWriter) error {
	w.WriteHeader(http.StatusNoContent)
	return nil
}

func decode(w http.ResponseWriter, r *http.Request, into any) error {
	body := json.NewDecoder(http.MaxBytesReader(w, r.Body, bodyMost))
	if err := body.Decode(into); err != nil {
		return fault.New(fault.Invalid, "the request's body: %v", err)
	}
	return nil
}

// work finds the user of a file request and makes its path absolute.
func (a *API) work(name, path string) (files.Work, string, error) {
	account, err := a.Settings.Account(name)
	if err != nil {
		return files.Work{}, "", err
	}
	path, err = a.resolve(account, path)
	return files.Work{Account: account, Users: a.Settings.Users}, path, err
}

func (a *API) resolve(account *user.Account, path string) (string, error) {
	return files.Resolve(path, account.Home, account, a.Settings.Users)
}

func (a *API) queryWork(r *http.Request) (files.Work, string, error) {
	query := r.URL.Query()
	if query.Get("path") == "" {
		return files.Work{}, "", fault.New(fault.Invalid, "path is empty")
	}
	return a.work(query.Get("user"), query.Get("path"))
}
