package atollapi

import (
	"net/http"
	"strconv"

	"atoll/agent/fault"
	"atoll/agent/files"
	"atoll/agent/user"
)

func (a *API) readFile(w http.ResponseWriter, r *http.Request) error {
	work, path, err := a.queryWork(r)
	if err != nil {
		return err
	}
	file, info, err := work.Open(path)
	if err != nil {
		return err
	}
	defer file.Close()
	w.Header().Set("Content-Type", "application/octet-stream")
	if info.Size() > 0 {
		w.Header().Set("Content-Length", strconv.FormatInt(info.Size(), 10))
	}
	w.WriteHeader(http.StatusOK)
	// Files of /proc say that they are empty and are not.
	if _, err := files.Copy(w, file); err != nil {
		// Too late for a status: the client sees a body that is cut.
		panic(http.ErrAbortHandler)
	}
	return nil
}

func (a *API) writeFile(w http.ResponseWriter, r *http.Request) error {
	work, path, err := a.queryWork(r)
	if err != nil {
		return err
	}
	mode, err := queryMode(r)
	if err != nil {
		return err
	}
	file, err := work.Write(path, mode, r.Body)
	if err != nil {
		return err
	}
	answer(w, http.StatusOK, map[string]any{"file": file})
	return nil
}

func queryMode(r *http.Request) (int, error) {
	text := r.URL.Query().Get("mode")
	if text == "" {
		return files.NoMode, nil
	}
	bits, err := strconv.ParseUint(text, 8, 12)
	if err != nil {
		return 0, fault.New(fault.Invalid, "%q is not an octal mode", text)
	}
	return int(bits), nil
}

type filesRequest struct {
	Op      string `json:"op"`
	Path    string `json:"path"`
	To      string `json:"to"`
	Depth   int    `json:"depth"`
	Parents bool   `json:"parents"`
	Follow  bool   `json:"follow"`
	User    string `json:"user"`
}

func (a *API) files(w http.ResponseWriter, r *http.Request) error {
	var request filesRequest
	if err := decode(w, r, &request); err != nil {
		return err
	}
	if request.Path == "" {
		return fault.New(fault.Invalid, "path is empty")
	}
	work, path, err := a.work(request.User, request.Path)
	if err != nil {
		return err
	}
	body, err := a.operate(work, path, &request)
	if err != nil {
		return err
	}
	answer(w, http.StatusOK, body)
	return nil
}

func (a *API) operate(work files.Work, path string, request *filesRequest) (map[string]any, error) {
	switch request.Op {
	case "stat":
		file, err := work.Stat(path, request.Follow)
		return map[string]any{"file": file}, err
	case "list":
		found, err := work.List(path, request.Depth)
		return map[string]any{"files": found}, err
	case "mkdir":
		file, err := work.MakeDirectory(path, request.Parents)
		return map[string]any{"file": file}, err
	case "move":
		if request.To == "" {
			return nil, fault.New(fault.Invalid, "to is empty")
		}
		to, err := a.resolve(work.Account, request.To)
		if err != nil {
			return nil, err
		}
		file, err := work.Move(path, to, request.Parents)
		return map[string]any{"file": file}, err
	case "remove":
		return map[string]any{}, work.Remove(path)
	}
	return nil, fault.New(fault.Invalid, "there is no operation %q", request.Op)
}

func (a *API) readTree(w http.ResponseWriter, r *http.Request) error {
	work, path, err := a.queryWork(r)
	if err != nil {
		return err
	}
	if err := work.CheckTree(path); err != nil {
		return err
	}
	w.Header().Set("Content-Type", "application/x-tar")
	w.WriteHeader(http.StatusOK)
	if err := work.Pack(path, w); err != nil {
		// What is buffered would be lost, and with it the reason.
		_ = http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	}
	return nil
}

func (a *API) writeTree(w http.ResponseWriter, r *http.Request) error {
	work, path, err := a.queryWork(r)
	if err != nil {
		return err
	}
	mode, err := queryMode(r)
	if err != nil {
		return err
	}
	var owner *user.Account
	if name := r.URL.Query().Get("owner"); name != "" {
		if owner, err = work.Users.Lookup(name); err != nil {
			return err
		}
	}
	count, err := work.Unpack(path, r.Body, owner, mode)
	if err != nil {
		return err
	}
	answer(w, http.StatusOK, map[string]any{"files": count})
	return nil
}
