package atollapi

import (
	"context"
	"io"
	"net/http"
	"strconv"
	"strings"

	"atoll/agent/fault"
	"atoll/agent/files"
	"atoll/agent/search"
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
	content, size, err := files.Content(file, info)
	if err != nil {
		return files.Named(err, path)
	}
	w.Header().Set("Content-Type", "application/octet-stream")
	body := io.Reader(content)
	if size > 0 {
		w.Header().Set("Content-Length", strconv.FormatInt(size, 10))
		body = io.LimitReader(content, size) // it may grow
	}
	w.WriteHeader(http.StatusOK)
	if _, err := files.Copy(w, body); err != nil {
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
	write := work.Write
	if r.URL.Query().Get("whole") == "true" {
		write = work.WriteWhole
	}
	file, err := write(path, mode, r.Body)
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
	Op        string `json:"op"`
	Path      string `json:"path"`
	To        string `json:"to"`
	Depth     int    `json:"depth"`
	Parents   bool   `json:"parents"`
	Follow    bool   `json:"follow"`
	User      string `json:"user"`
	Pattern   string `json:"pattern"`
	Hidden    bool   `json:"hidden"`
	Mode      *int   `json:"mode"`
	Owner     string `json:"owner"`
	Recursive bool   `json:"recursive"`
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
	body, err := a.operate(r.Context(), work, path, &request)
	if err != nil {
		return err
	}
	answer(w, http.StatusOK, body)
	return nil
}

func (a *API) operate(ctx context.Context, work files.Work, path string, request *filesRequest) (map[string]any, error) {
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
	case "move", "copy":
		if request.To == "" {
			return nil, fault.New(fault.Invalid, "to is empty")
		}
		to, err := a.resolve(work.Account, request.To)
		if err != nil {
			return nil, err
		}
		bring := work.Move
		if request.Op == "copy" {
			bring = work.Copy
		}
		file, err := bring(path, to, request.Parents)
		return map[string]any{"file": file}, err
	case "glob":
		glob, err := search.NewGlob(request.Pattern, false)
		if err != nil {
			return nil, err
		}
		hidden := request.Hidden || strings.Contains("/"+request.Pattern, "/.")
		found, err := work.Glob(path, glob.Match, files.GlobDepth(request.Pattern), hidden)
		return map[string]any{"files": found}, err
	case "chmod":
		if request.Mode == nil || *request.Mode < 0 || *request.Mode > 0o7777 {
			return nil, fault.New(fault.Invalid, "mode is missing, or is none")
		}
		return map[string]any{}, work.Chmod(ctx, path, uint32(*request.Mode), request.Recursive)
	case "chown":
		owner, err := work.Users.Lookup(request.Owner)
		if err != nil {
			return nil, err
		}
		return map[string]any{}, work.Chown(ctx, path, owner, request.Recursive)
	case "remove":
		return map[string]any{}, work.Remove(path)
	}
	return nil, fault.New(fault.Invalid, "there is no operation %q", request.Op)
}

// writeFiles makes the files of a tar whose names are paths, each as a whole or not at all.
func (a *API) writeFiles(w http.ResponseWriter, r *http.Request) error {
	account, err := a.Settings.Account(r.URL.Query().Get("user"))
	if err != nil {
		return err
	}
	work := files.Work{Account: account, Users: a.Settings.Users}
	written, err := work.WriteMany(r.Body, func(path string) (string, error) { return a.resolve(account, path) })
	if err != nil {
		return err
	}
	answer(w, http.StatusOK, map[string]any{"files": written})
	return nil
}

func (a *API) readTree(w http.ResponseWriter, r *http.Request) error {
	work, path, err := a.queryWork(r)
	if err != nil {
		return err
	}
	check, pack := work.CheckTree, work.Pack
	if name := r.URL.Query().Get("as"); name != "" {
		check = work.CheckFile
		pack = func(path string, out io.Writer) error { return work.PackFile(path, name, out) }
	}
	if err := check(path); err != nil {
		return err
	}
	w.Header().Set("Content-Type", "application/x-tar")
	w.WriteHeader(http.StatusOK)
	if err := pack(path, w); err != nil {
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
	look := files.Look{Mode: mode, KeepsOwners: r.URL.Query().Get("owners") == "true"}
	if name := r.URL.Query().Get("owner"); name != "" {
		if look.Owner, err = work.Users.Lookup(name); err != nil {
			return err
		}
	}
	count, err := work.Unpack(path, r.Body, look)
	if err != nil {
		return err
	}
	answer(w, http.StatusOK, map[string]any{"files": count})
	return nil
}
