package envd

import (
	"encoding/base64"
	"maps"
	"net/http"
	"strconv"
	"time"

	"atoll/agent/fault"
	"atoll/agent/frames"
	"atoll/agent/process"
	"atoll/agent/pty"
)

type processConfig struct {
	Cmd  string            `json:"cmd"`
	Args []string          `json:"args,omitempty"`
	Envs map[string]string `json:"envs,omitempty"`
	Cwd  string            `json:"cwd,omitempty"`
}

type terminal struct {
	Size *pty.Size `json:"size"`
}

type selector struct {
	PID *int    `json:"pid"`
	Tag *string `json:"tag"`
}

func (a *API) selected(s selector) (*process.Process, error) {
	switch {
	case s.PID != nil:
		return a.Table.Get(*s.PID)
	case s.Tag != nil:
		return a.Table.GetTagged(*s.Tag)
	}
	return nil, fault.New(fault.Invalid, "give a pid or a tag")
}

type processInfo struct {
	Config processConfig `json:"config"`
	PID    int           `json:"pid"`
	Tag    string        `json:"tag,omitempty"`
}

func (a *API) list(*http.Request, *struct{}) (any, error) {
	infos := []processInfo{}
	for _, p := range a.Table.List() {
		infos = append(infos, processInfo{
			Config: processConfig{Cmd: p.Argv[0], Args: p.Argv[1:], Envs: p.Asked, Cwd: p.Cwd}, PID: p.PID, Tag: p.Tag,
		})
	}
	return map[string]any{"processes": infos}, nil
}

type startRequest struct {
	Process processConfig `json:"process"`
	Pty     *terminal     `json:"pty"`
	Tag     string        `json:"tag"`
	Stdin   *bool         `json:"stdin"`
}

// defaultSize is that of a terminal whose size the client leaves open.
var defaultSize = pty.Size{Cols: 80, Rows: 24}

func (a *API) start(r *http.Request, out *stream) error {
	var request startRequest
	if err := receive(r.Body, &request); err != nil {
		return err
	}
	spec, err := a.spec(r, &request)
	if err != nil {
		return err
	}
	p, follower, err := a.Table.Start(*spec)
	if err != nil {
		return err
	}
	defer follower.Leave()
	return follow(r, out, p, follower, 0)
}

func (a *API) spec(r *http.Request, request *startRequest) (*process.Spec, error) {
	account, err := a.account(r)
	if err != nil {
		return nil, err
	}
	cwd, err := a.resolve(account, request.Process.Cwd)
	if err != nil {
		return nil, err
	}
	if err := process.CheckDirectory(account, cwd); err != nil {
		if request.Process.Cwd != "" {
			return nil, fault.New(fault.CwdMissing, "cwd '%s' does not exist", cwd)
		}
		cwd = "/"
	}
	spec := &process.Spec{
		Argv: append([]string{request.Process.Cmd}, request.Process.Args...), Cwd: cwd,
		Env: a.Settings.Environment(account, told(r, request.Process.Envs)), Asked: request.Process.Envs, Account: account,
		Stdin: request.Stdin == nil || *request.Stdin, Timeout: deadlineOf(r), Tag: request.Tag,
	}
	if request.Pty != nil {
		size := defaultSize
		if request.Pty.Size != nil {
			size = *request.Pty.Size
		}
		spec.Terminal = &size
	}
	return spec, nil
}

// told is what a request asks for, over what programs of E2B's clients know their sandbox by. The server tells it with
// each request: a copy has an id of its own, and nothing of it need be set inside when a sandbox is made.
func told(r *http.Request, asked map[string]string) map[string]string {
	id := r.Header.Get("E2b-Sandbox-Id")
	if id == "" {
		return asked
	}
	env := map[string]string{"E2B_SANDBOX": "true", "E2B_SANDBOX_ID": id}
	if template := r.Header.Get("E2b-Template-Id"); template != "" {
		env["E2B_TEMPLATE_ID"] = template
	}
	maps.Copy(env, asked)
	return env
}

func (a *API) connect(r *http.Request, out *stream) error {
	var request struct {
		Process selector `json:"process"`
	}
	if err := receive(r.Body, &request); err != nil {
		return err
	}
	p, err := a.selected(request.Process)
	if err != nil {
		return err
	}
	follower := p.Log.Resume()
	defer follower.Leave()
	return follow(r, out, p, follower, deadlineOf(r))
}

// follow sends a process's events until it ends, the client leaves or the stream's own time is over.
func follow(r *http.Request, out *stream, p *process.Process, follower *process.Follower, limit time.Duration) error {
	start := `{"event":{"start":{"pid":` + strconv.Itoa(p.PID) + `}}}`
	if err := out.write(0, []byte(start)); err != nil {
		return err
	}
	out.flush()
	every := keepaliveOf(r)
	alive := time.NewTicker(every)
	defer alive.Stop()
	var over <-chan time.Time
	if limit > 0 {
		timer := time.NewTimer(limit)
		defer timer.Stop()
		over = timer.C
	}
	for {
		if r.Context().Err() != nil {
			return errLeft
		}
		end, err := sendOutput(out, follower)
		if err != nil {
			return err
		}
		if end != nil {
			return sendEnd(out, end)
		}
		out.flush()
		select {
		case <-follower.Wake:
			alive.Reset(every)
		case <-alive.C:
			if err := out.write(0, []byte(`{"event":{"keepalive":{}}}`)); err != nil {
				return err
			}
		case <-over:
			return &rpcError{"deadline_exceeded", "the stream's time is over"}
		case <-r.Context().Done():
			return errLeft
		}
	}
}

var errLeft = &rpcError{"canceled", "the client left"}

var dataPrefix = map[byte]string{
	frames.Stdout:   `{"event":{"data":{"stdout":"`,
	frames.Stderr:   `{"event":{"data":{"stderr":"`,
	frames.Terminal: `{"event":{"data":{"pty":"`,
}

func sendOutput(out *stream, follower *process.Follower) (*process.End, error) {
	buffer := frames.Take()
	defer frames.Give(buffer)
	for {
		kind, count, end := follower.Take(buffer.Payload())
		if count == 0 {
			return end, nil
		}
		out.begin()
		out.frame = append(out.frame, dataPrefix[kind]...)
		out.frame = base64.StdEncoding.AppendEncode(out.frame, buffer.Payload()[:count])
		out.frame = append(out.frame, `"}}}`...)
		if err := out.send(); err != nil {
			follower.Return(count)
			return nil, err
		}
	}
}

type endEvent struct {
	ExitCode int    `json:"exitCode"`
	Exited   bool   `json:"exited"`
	Status   string `json:"status"`
	Error    string `json:"error,omitempty"`
}

func sendEnd(out *stream, end *process.End) error {
	if end.TimedOut {
		return &rpcError{"deadline_exceeded", "the process was killed when its time was over"}
	}
	event := endOf(end)
	return out.sendJSON(map[string]any{"event": map[string]any{"end": event}})
}

func endOf(end *process.End) endEvent {
	event := plainEndOf(end)
	if end.MemoryKill != nil && event.Error != "" {
		event.Error += ": " + end.MemoryKill.String()
	}
	return event
}

func plainEndOf(end *process.End) endEvent {
	if end.Signal != 0 {
		status := "signal: " + signalName(end.Signal)
		return endEvent{ExitCode: -1, Status: status, Error: status}
	}
	event := endEvent{ExitCode: end.ExitCode, Exited: true, Status: "exit status " + strconv.Itoa(end.ExitCode)}
	if end.ExitCode != 0 {
		event.Error = event.Status
	}
	return event
}
