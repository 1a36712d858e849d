package envd

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"
	"syscall"

	"atoll/agent/fault"
	"atoll/agent/process"
)

func signalName(number int) string { return syscall.Signal(number).String() }

type input struct {
	Stdin []byte `json:"stdin"`
	Pty   []byte `json:"pty"`
}

// give hands input to the kind of entry that the process has.
func (i input) give(p *process.Process) error {
	data, wrong := i.Stdin, i.Pty
	if p.Terminal != nil {
		data, wrong = i.Pty, i.Stdin
	}
	if len(wrong) > 0 {
		return fault.New(fault.Invalid, "process %d takes the other kind of input", p.PID)
	}
	if len(data) == 0 {
		return nil
	}
	return inputError(p.Write(bytes.NewReader(data)))
}

func inputError(err error) error {
	if err != nil && fault.Of(err).Code == fault.Invalid {
		return &rpcError{"internal", err.Error()}
	}
	return err
}

type sendInputRequest struct {
	Process selector `json:"process"`
	Input   input    `json:"input"`
}

func (a *API) sendInput(_ *http.Request, request *sendInputRequest) (any, error) {
	p, err := a.selected(request.Process)
	if err != nil {
		return nil, err
	}
	return struct{}{}, request.Input.give(p)
}

type streamInputMessage struct {
	Start *struct {
		Process selector `json:"process"`
	} `json:"start"`
	Data *struct {
		Input input `json:"input"`
	} `json:"data"`
}

func (a *API) streamInput(r *http.Request, out *stream) error {
	var p *process.Process
	for {
		var message streamInputMessage
		err := receive(r.Body, &message)
		if errors.Is(err, io.EOF) {
			return out.sendJSON(struct{}{})
		}
		if err != nil {
			return err
		}
		switch {
		case message.Start != nil:
			if p, err = a.selected(message.Start.Process); err != nil {
				return err
			}
		case message.Data != nil && p == nil:
			return fault.New(fault.Invalid, "the stream's first message must be a start")
		case message.Data != nil:
			if err := message.Data.Input.give(p); err != nil {
				return err
			}
		}
	}
}

type updateRequest struct {
	Process selector  `json:"process"`
	Pty     *terminal `json:"pty"`
}

func (a *API) update(_ *http.Request, request *updateRequest) (any, error) {
	p, err := a.selected(request.Process)
	if err != nil {
		return nil, err
	}
	if request.Pty == nil || request.Pty.Size == nil {
		return struct{}{}, nil
	}
	return struct{}{}, p.Resize(*request.Pty.Size)
}

type sendSignalRequest struct {
	Process selector        `json:"process"`
	Signal  json.RawMessage `json:"signal"`
}

func (a *API) sendSignal(_ *http.Request, request *sendSignalRequest) (any, error) {
	p, err := a.selected(request.Process)
	if err != nil {
		return nil, err
	}
	switch name := strings.Trim(string(request.Signal), `"`); name {
	case "SIGNAL_SIGTERM", "15":
		err = p.Signal(syscall.SIGTERM)
	case "SIGNAL_SIGKILL", "9":
		err = p.Signal(syscall.SIGKILL)
	default:
		err = &rpcError{"unimplemented", "signal " + name + " is not supported"}
	}
	return struct{}{}, err
}

type closeStdinRequest struct {
	Process selector `json:"process"`
}

func (a *API) closeStdin(_ *http.Request, request *closeStdinRequest) (any, error) {
	p, err := a.selected(request.Process)
	if err != nil {
		return nil, err
	}
	if p.Terminal != nil {
		return nil, &rpcError{"failed_precondition", "a terminal has no standard input that can be closed; send Ctrl+D"}
	}
	return struct{}{}, inputError(p.CloseInput())
}
