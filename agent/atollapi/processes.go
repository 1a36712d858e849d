package atollapi

import (
	"math"
	"net/http"
	"strconv"
	"strings"
	"syscall"
	"time"

	"atoll/agent/fault"
	"atoll/agent/frames"
	"atoll/agent/process"
	"atoll/agent/pty"
	"atoll/agent/settings"
	"atoll/agent/user"
)

const aliveEvery = 15 * time.Second

// waitedTag begins the tag of a program for whose end its client waits, with nothing else to do.
const waitedTag = "exec-"

type startRequest struct {
	Argv      []string          `json:"argv"`
	Line      *string           `json:"line"`
	Cwd       string            `json:"cwd"`
	Env       map[string]string `json:"env"`
	User      string            `json:"user"`
	Stdin     bool              `json:"stdin"`
	Pty       *pty.Size         `json:"pty"`
	TimeoutMS int64             `json:"timeout_ms"`
	Tag       string            `json:"tag"`
}

func (a *API) start(w http.ResponseWriter, r *http.Request) error {
	var request startRequest
	if err := decode(w, r, &request); err != nil {
		return err
	}
	spec, err := a.spec(&request)
	if err != nil {
		return err
	}
	p, follower, err := a.begin(spec, request.Cwd)
	if err != nil {
		return err
	}
	defer follower.Close()
	if strings.HasPrefix(spec.Tag, waitedTag) {
		a.waiting.Add(1)
		defer a.waiting.Add(-1)
	}
	patience, _ := strconv.Atoi(r.URL.Query().Get("patience_ms"))
	stream(w, r, p, follower, time.Duration(patience)*time.Millisecond)
	return nil
}

// begin starts a program in the directory that was asked for, or else in the default one.
func (a *API) begin(spec *process.Spec, asked string) (*process.Process, *process.Follower, error) {
	p, follower, err := a.Table.Start(*spec)
	if err != nil && asked == "" && process.CheckDirectory(spec.Account, spec.Cwd) != nil {
		// The user cannot enter the default directory, which is looked at only now because looking costs a thread.
		spec.Cwd = "/"
		p, follower, err = a.Table.Start(*spec)
	}
	return p, follower, err
}

func (a *API) spec(request *startRequest) (*process.Spec, error) {
	account, err := a.Settings.Account(request.User)
	if err != nil {
		return nil, err
	}
	cwd, err := a.cwd(account, request.Cwd)
	if err != nil {
		return nil, err
	}
	spec := &process.Spec{
		Argv: request.Argv, Cwd: cwd, Account: account, Stdin: request.Stdin, Terminal: request.Pty,
		Timeout: time.Duration(request.TimeoutMS) * time.Millisecond, Tag: request.Tag,
	}
	switch {
	case request.Line != nil && request.Argv != nil:
		return nil, fault.New(fault.Invalid, "give argv or line, not both")
	case request.Line != nil && !settings.HasShell():
		return nil, fault.New(fault.ShellMissing, "there is no shell to run a line with: /bin/bash and /bin/sh are missing")
	case request.Line != nil:
		spec.Argv = []string{settings.Shell(), "-c", *request.Line}
		spec.Env = a.Logins.Environment(account, request.Env)
	default:
		spec.Env = a.Settings.Environment(account, request.Env)
	}
	return spec, nil
}

// cwd is the asked directory, or the default one.
func (a *API) cwd(account *user.Account, asked string) (string, error) {
	if asked != "" {
		return a.resolve(account, asked)
	}
	cwd, err := a.resolve(account, a.Settings.Cwd(account))
	if err != nil {
		return "/", nil
	}
	return cwd, nil
}

// lastFrame says as well whether there was output that the client did not get.
type lastFrame struct {
	process.End
	Missed bool `json:"missed"`
}

// startFrame says as well how much of the output that follows was written before the client came.
type startFrame struct {
	PID  int   `json:"pid"`
	Kept int64 `json:"kept,omitempty"`
}

// stream sends a process's frames until it ends or the client leaves. The first one waits so long for company.
func stream(
	w http.ResponseWriter, r *http.Request, p *process.Process, follower *process.Follower, patience time.Duration,
) {
	out := frames.NewWriter(w)
	if out.SendJSON(frames.Start, startFrame{p.PID, follower.Kept}) != nil {
		return
	}
	if patience > 0 {
		select {
		case <-follower.Wake:
		case <-time.After(patience):
		}
	}
	alive := time.NewTicker(aliveEvery)
	defer alive.Stop()
	for {
		end, err := sendOutput(out, follower, math.MaxInt64)
		if err != nil {
			return
		}
		if end != nil {
			// The stream ends either way.
			_ = out.SendJSON(frames.End, lastFrame{*end, follower.Missed})
			return
		}
		out.Flush()
		select {
		case <-follower.Wake:
			alive.Reset(aliveEvery)
		case <-alive.C:
			if out.SendAlive() != nil {
				return
			}
		case <-r.Context().Done():
			return
		}
	}
}

// sendOutput sends what there is, at most so many bytes.
func sendOutput(out *frames.Writer, follower *process.Follower, most int64) (*process.End, error) {
	buffer := frames.Take()
	defer frames.Give(buffer)
	for most > 0 {
		into := buffer.Payload()
		kind, count, end := follower.Take(into[:min(int64(len(into)), most)])
		if count == 0 {
			return end, nil
		}
		if err := out.Send(kind, buffer, count); err != nil {
			return nil, err
		}
		most -= int64(count)
	}
	return nil, nil
}

type processInfo struct {
	PID         int       `json:"pid"`
	Argv        []string  `json:"argv"`
	Cwd         string    `json:"cwd"`
	User        string    `json:"user"`
	StartedAtMS int64     `json:"started_at_ms"`
	Pty         *pty.Size `json:"pty"`
	Tag         string    `json:"tag"`
}

func (a *API) list(w http.ResponseWriter, _ *http.Request) error {
	infos := []processInfo{}
	for _, p := range a.Table.List() {
		infos = append(infos, processInfo{
			PID: p.PID, Argv: p.Argv, Cwd: p.Cwd, User: p.Account.Name,
			StartedAtMS: p.StartedAt.UnixMilli(), Pty: p.Terminal, Tag: p.Tag,
		})
	}
	answer(w, http.StatusOK, map[string]any{"processes": infos})
	return nil
}

func (a *API) process(r *http.Request) (*process.Process, error) {
	pid, err := strconv.Atoi(r.PathValue("pid"))
	if err != nil || pid <= 0 {
		return nil, fault.New(fault.Invalid, "%q is not a process id", r.PathValue("pid"))
	}
	return a.Table.Get(pid)
}

func (a *API) output(w http.ResponseWriter, r *http.Request) error {
	p, err := a.process(r)
	if err != nil {
		return err
	}
	follower := p.Log.Follow(true)
	defer follower.Close()
	stream(w, r, p, follower, 0)
	return nil
}

func (a *API) stdin(w http.ResponseWriter, r *http.Request) error {
	p, err := a.process(r)
	if err != nil {
		return err
	}
	if err := p.Write(r.Body); err != nil {
		return err
	}
	if r.URL.Query().Get("eof") == "1" {
		if err := p.CloseInput(); err != nil {
			return err
		}
	}
	return done(w)
}

func (a *API) signal(w http.ResponseWriter, r *http.Request) error {
	p, err := a.process(r)
	if err != nil {
		return err
	}
	var request struct {
		Signal int `json:"signal"`
	}
	if err := decode(w, r, &request); err != nil {
		return err
	}
	if err := p.Signal(syscall.Signal(request.Signal)); err != nil {
		return err
	}
	return done(w)
}

func (a *API) resize(w http.ResponseWriter, r *http.Request) error {
	p, err := a.process(r)
	if err != nil {
		return err
	}
	var size pty.Size
	if err := decode(w, r, &size); err != nil {
		return err
	}
	if err := p.Resize(size); err != nil {
		return err
	}
	return done(w)
}
