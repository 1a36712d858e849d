package atollapi

import (
	"math"
	"net/http"
	"time"

	"atoll/agent/fault"
	"atoll/agent/frames"
	"atoll/agent/process"
	"atoll/agent/service"
)

// beginService starts a service's program, or its health check.
func (a *API) beginService(d *service.Definition, check bool) (*process.Process, *process.Follower, error) {
	spec, err := a.spec(&startRequest{
		Argv: d.Argv, Line: d.Line, Cwd: d.Cwd, Env: d.Env, User: d.User, TimeoutMS: d.TimeoutMS, Tag: "service:" + d.Name,
	})
	if err != nil {
		return nil, nil, err
	}
	spec.Hidden, spec.Passing = check, true
	return a.begin(spec, d.Cwd)
}

func (a *API) listServices(w http.ResponseWriter, _ *http.Request) error {
	answer(w, http.StatusOK, map[string]any{"services": a.services.States()})
	return nil
}

func (a *API) putService(w http.ResponseWriter, r *http.Request) error {
	var definition service.Definition
	if err := decode(w, r, &definition); err != nil {
		return err
	}
	if definition.Name != r.PathValue("name") {
		return fault.New(fault.Invalid, "the path names another service than the body")
	}
	// What can be known of the program now is told to whoever defines it, not only when it fails.
	account, err := a.Settings.Account(definition.User)
	if err != nil {
		return err
	}
	if definition.Cwd != "" {
		path, err := a.resolve(account, definition.Cwd)
		if err != nil {
			return err
		}
		if err := process.CheckDirectory(account, path); err != nil {
			return err
		}
	}
	if err := a.services.Put(definition); err != nil {
		return err
	}
	if one, err := a.services.Get(definition.Name); err == nil {
		one.Begun()
	}
	return a.listServices(w, r)
}

func (a *API) removeService(w http.ResponseWriter, r *http.Request) error {
	a.services.Remove(r.PathValue("name"))
	return done(w)
}

func (a *API) moveService(w http.ResponseWriter, r *http.Request) error {
	one, err := a.services.Get(r.PathValue("name"))
	if err != nil {
		return err
	}
	switch verb := r.PathValue("verb"); verb {
	case "start":
		one.Start()
	case "stop":
		one.Stop()
	case "restart":
		one.Restart()
	default:
		return fault.New(fault.Invalid, "a service cannot %s", verb)
	}
	return a.listServices(w, r)
}

// serviceOutput sends what all runs of a service had printed until now, and with follow what comes, until it is removed.
func (a *API) serviceOutput(w http.ResponseWriter, r *http.Request) error {
	one, err := a.services.Get(r.PathValue("name"))
	if err != nil {
		return err
	}
	follower := one.Log.Follow(true)
	defer follower.Close()
	out := frames.NewWriter(w)
	if out.SendJSON(frames.Start, map[string]int64{"kept": follower.Kept}) != nil {
		return nil
	}
	follow := r.URL.Query().Get("follow") == "true"
	alive := time.NewTicker(aliveEvery)
	defer alive.Stop()
	for {
		most := int64(math.MaxInt64)
		if !follow {
			most = follower.Kept
		}
		end, err := sendOutput(out, follower, most)
		if err != nil {
			return nil
		}
		if end != nil || !follow {
			// The stream ends either way.
			_ = out.SendJSON(frames.End, lastFrame{process.End{}, follower.Missed})
			return nil
		}
		out.Flush()
		select {
		case <-follower.Wake:
			alive.Reset(aliveEvery)
		case <-alive.C:
			if out.SendAlive() != nil {
				return nil
			}
		case <-r.Context().Done():
			return nil
		}
	}
}
