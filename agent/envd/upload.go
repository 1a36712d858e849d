package envd

import (
	"compress/gzip"
	"encoding/json"
	"errors"
	"io"
	"mime"
	"mime/multipart"
	"net/http"
	"path/filepath"
	"strings"

	"atoll/agent/fault"
	"atoll/agent/files"
)

const (
	metadataHeader    = "X-Metadata-"
	metadataKeyMost   = 246
	metadataTotalMost = 4096
)

type written struct {
	Path     string            `json:"path"`
	Name     string            `json:"name"`
	Type     string            `json:"type"`
	Metadata map[string]string `json:"metadata,omitempty"`
}

// upload holds what is needed for the files of one request.
type upload struct {
	api      *API
	work     files.Work
	path     string // of the query
	metadata map[string]string
	done     []written
}

func (a *API) upload(w http.ResponseWriter, r *http.Request) {
	done, err := a.receiveFiles(r)
	if err != nil {
		answerFault(w, err)
		return
	}
	answer(w, http.StatusOK, done)
}

func (a *API) receiveFiles(r *http.Request) ([]written, error) {
	work, err := a.filesWork(r)
	if err != nil {
		return nil, err
	}
	work.Gives = true
	u := &upload{api: a, work: work, path: r.URL.Query().Get("path"), done: []written{}}
	if u.metadata, err = metadataOf(r.Header); err != nil {
		return nil, err
	}
	var body io.Reader = r.Body
	switch encoding := strings.ToLower(r.Header.Get("Content-Encoding")); encoding {
	case "", "identity":
	case "gzip":
		unpacked, err := gzip.NewReader(body)
		if err != nil {
			return nil, fault.New(fault.Invalid, "the request's gzip body: %v", err)
		}
		body = unpacked
	default:
		return nil, fault.New(fault.Invalid, "content encoding %q is not supported", encoding)
	}
	kind, parameters, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	switch {
	case err == nil && kind == "multipart/form-data":
		err = u.parts(multipart.NewReader(body, parameters["boundary"]))
	case err == nil && kind == "application/octet-stream":
		if u.path == "" {
			return nil, fault.New(fault.Invalid, "path is required for an octet-stream")
		}
		err = u.file(u.path, body)
	default:
		err = fault.New(fault.Invalid, "content type %q is not supported", r.Header.Get("Content-Type"))
	}
	return u.done, err
}

func (u *upload) parts(in *multipart.Reader) error {
	seen := map[string]bool{}
	for {
		part, err := in.NextRawPart()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fault.New(fault.Invalid, "the request's multipart body: %v", err)
		}
		if part.FormName() != "file" {
			continue
		}
		path := u.path
		if path == "" {
			// Part.FileName would leave only the last element.
			_, parameters, err := mime.ParseMediaType(part.Header.Get("Content-Disposition"))
			if err != nil || parameters["filename"] == "" {
				return fault.New(fault.Invalid, "a part has no file name and the query no path")
			}
			path = parameters["filename"]
		}
		if seen[path] {
			return fault.New(fault.Invalid, "you cannot upload multiple files to the same path '%s' in one upload request, "+
				"only the first specified file was uploaded", path)
		}
		seen[path] = true
		if err := u.file(path, part); err != nil {
			return err
		}
	}
}

func (u *upload) file(path string, body io.Reader) error {
	path, err := u.api.resolve(u.work.Account, path)
	if err != nil {
		return err
	}
	file, err := u.work.Create(path, files.NoMode)
	if err != nil {
		if fault.Of(err).Code == fault.IsADirectory {
			return fault.New(fault.IsADirectory, "path '%s' is a directory", path)
		}
		return err
	}
	err = files.SetMetadata(file, u.metadata)
	if err == nil {
		_, err = files.Copy(file, body)
	}
	if closed := file.Close(); err == nil {
		err = closed
	}
	if err != nil {
		return files.Named(err, path)
	}
	u.done = append(u.done, written{path, filepath.Base(path), "file", u.metadata})
	return nil
}

func metadataOf(header http.Header) (map[string]string, error) {
	var found map[string]string
	total := 0
	for name, values := range header {
		key, ok := strings.CutPrefix(name, metadataHeader)
		if !ok {
			continue
		}
		key, value := strings.ToLower(key), values[0]
		total += len(key) + len(value)
		switch {
		case key == "" || len(key) > metadataKeyMost:
			return nil, fault.New(fault.Invalid, "a metadata key must have 1 to %d bytes", metadataKeyMost)
		case !isASCII(key) || !isASCII(value):
			return nil, fault.New(fault.Invalid, "metadata must be printable ASCII: %q", key)
		case total > metadataTotalMost:
			return nil, fault.New(fault.Invalid, "metadata has more than %d bytes", metadataTotalMost)
		}
		if found == nil {
			found = map[string]string{}
		}
		found[key] = value
	}
	return found, nil
}

type composeRequest struct {
	SourcePaths []string `json:"source_paths"`
	Destination string   `json:"destination"`
	Username    string   `json:"username"`
}

// compose makes one file of several, and removes those.
func (a *API) compose(w http.ResponseWriter, r *http.Request) {
	var request composeRequest
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, messageMost)).Decode(&request); err != nil {
		answerHTTP(w, http.StatusBadRequest, "the request's body: "+err.Error())
		return
	}
	done, err := a.composed(r, &request)
	if err != nil {
		answerFault(w, err)
		return
	}
	answer(w, http.StatusOK, done)
}

func (a *API) composed(r *http.Request, request *composeRequest) (*written, error) {
	if len(request.SourcePaths) == 0 || request.Destination == "" {
		return nil, fault.New(fault.Invalid, "source_paths and destination are required")
	}
	name := request.Username
	if name == "" {
		name, _, _ = r.BasicAuth()
	}
	account, err := a.named(name)
	if err != nil {
		return nil, err
	}
	work := files.Work{Account: account, Users: a.Settings.Users, Gives: true}
	paths := make([]string, 0, len(request.SourcePaths)+1)
	for _, path := range append(request.SourcePaths, request.Destination) {
		if path, err = a.resolve(account, path); err != nil {
			return nil, err
		}
		paths = append(paths, path)
	}
	destination := paths[len(paths)-1]
	if err := work.Join(paths[:len(paths)-1], destination); err != nil {
		return nil, err
	}
	return &written{Path: destination, Name: filepath.Base(destination), Type: "file"}, nil
}
