package envd

import (
	"io/fs"
	"net/http"
	"os"

	"atoll/agent/fault"
	"atoll/agent/files"
	"atoll/agent/user"
)

type pathRequest struct {
	Path string `json:"path"`
}

// place finds the user of a request and makes its path absolute.
func (a *API) place(r *http.Request, path string) (files.Work, string, error) {
	work, err := a.work(r)
	if err != nil {
		return work, "", err
	}
	path, err = a.resolve(work.Account, path)
	return work, path, err
}

func (a *API) answerEntry(work files.Work, path string) (any, error) {
	found, err := a.entryOf(work, path)
	if err != nil {
		return nil, err
	}
	return map[string]any{"entry": found}, nil
}

func (a *API) stat(r *http.Request, request *pathRequest) (any, error) {
	work, path, err := a.place(r, request.Path)
	if err != nil {
		return nil, err
	}
	return a.answerEntry(work, path)
}

func (a *API) makeDir(r *http.Request, request *pathRequest) (any, error) {
	work, path, err := a.place(r, request.Path)
	if err != nil {
		return nil, err
	}
	var found fs.FileInfo
	err = work.Account.Act(func() error {
		// Any failure here shows again when the directory is made.
		found, _ = os.Stat(path)
		return nil
	})
	switch {
	case err != nil:
		return nil, err
	case found != nil && found.IsDir():
		return nil, fault.New(fault.FileTaken, "directory already exists: %s", path)
	case found != nil:
		return nil, fault.New(fault.Invalid, "path already exists but it is not a directory: %s", path)
	}
	work.Gives = true
	if _, err := work.MakeDirectory(path, true); err != nil {
		return nil, err
	}
	made, err := a.answerEntry(work, path)
	if err != nil && fault.Of(err).Code == fault.Denied {
		// It is the user's, in a directory that the user cannot look into.
		work.Account = user.Agent()
		return a.answerEntry(work, path)
	}
	return made, err
}

type moveRequest struct {
	Source      string `json:"source"`
	Destination string `json:"destination"`
}

func (a *API) move(r *http.Request, request *moveRequest) (any, error) {
	work, source, err := a.place(r, request.Source)
	if err != nil {
		return nil, err
	}
	destination, err := a.resolve(work.Account, request.Destination)
	if err != nil {
		return nil, err
	}
	if _, err := work.Move(source, destination, true); err != nil {
		return nil, err
	}
	return a.answerEntry(work, destination)
}

type listDirRequest struct {
	Path  string `json:"path"`
	Depth int    `json:"depth"`
}

func (a *API) listDir(r *http.Request, request *listDirRequest) (any, error) {
	work, path, err := a.place(r, request.Path)
	if err != nil {
		return nil, err
	}
	entries := []entry{}
	err = work.Walk(path, request.Depth, func(below string, info fs.FileInfo) {
		entries = append(entries, describe(below, info, a.Settings.Users))
	})
	if err != nil {
		return nil, err
	}
	return map[string]any{"entries": entries}, nil
}

func (a *API) remove(r *http.Request, request *pathRequest) (any, error) {
	work, path, err := a.place(r, request.Path)
	if err != nil {
		return nil, err
	}
	err = work.Remove(path)
	if err != nil && fault.Of(err).Code != fault.FileMissing {
		return nil, err
	}
	return struct{}{}, nil
}
