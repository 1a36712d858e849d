package envd

import (
	"compress/gzip"
	"io/fs"
	"net/http"
	"os"
	"strconv"
	"strings"

	"atoll/agent/fault"
	"atoll/agent/files"
)

func (a *API) filesWork(r *http.Request) (files.Work, error) {
	query := r.URL.Query()
	name := query.Get("username")
	if name == "" {
		name, _, _ = r.BasicAuth()
	}
	account, err := a.named(name)
	return files.Work{Account: account, Users: a.Settings.Users}, err
}

func (a *API) download(w http.ResponseWriter, r *http.Request) {
	file, info, err := a.openFile(r)
	if err != nil {
		answerFault(w, err)
		return
	}
	defer file.Close()
	content, size, err := files.Content(file, info)
	if err != nil {
		answerFault(w, err)
		return
	}
	compress, acceptable := encodingOf(r)
	if !acceptable {
		answerHTTP(w, http.StatusNotAcceptable, "no acceptable encoding; gzip and identity are supported")
		return
	}
	header := w.Header()
	header.Set("Content-Type", "application/octet-stream")
	header.Set("Vary", "Accept-Encoding")
	switch {
	case compress && r.Header.Get("Range") == "":
		header.Set("Content-Encoding", "gzip")
		compressed := gzip.NewWriter(w)
		_, err = files.Copy(compressed, content)
		if closed := compressed.Close(); err == nil {
			err = closed
		}
	case size == 0:
		_, err = files.Copy(w, content)
	default:
		http.ServeContent(w, r, "", info.ModTime(), content)
	}
	if err != nil {
		panic(http.ErrAbortHandler)
	}
}

func (a *API) openFile(r *http.Request) (*os.File, fs.FileInfo, error) {
	work, err := a.filesWork(r)
	if err != nil {
		return nil, nil, err
	}
	path, err := a.resolve(work.Account, r.URL.Query().Get("path"))
	if err != nil {
		return nil, nil, err
	}
	file, info, err := work.Open(path)
	if err != nil && fault.Of(err).Code == fault.NotADirectory {
		return nil, nil, fault.New(fault.FileMissing, "path '%s' does not exist", path)
	}
	return file, info, err
}

// encodingOf tells whether to compress. A client that takes other encodings too gets the bytes as they are, which costs least.
func encodingOf(r *http.Request) (compress, acceptable bool) {
	identity, gzipped, other := true, false, false
	for part := range strings.SplitSeq(r.Header.Get("Accept-Encoding"), ",") {
		name, weight, _ := strings.Cut(strings.TrimSpace(part), ";")
		wanted := !refused(weight)
		switch strings.ToLower(strings.TrimSpace(name)) {
		case "":
		case "gzip", "x-gzip":
			gzipped = wanted
		case "identity":
			identity = wanted
			other = other || wanted
		case "*":
			if !wanted {
				identity = false
			} else {
				other = true
			}
		default:
			other = other || wanted
		}
	}
	switch {
	case gzipped && (!other || !identity):
		return true, true
	case identity:
		return false, true
	}
	return gzipped, gzipped
}

func refused(weight string) bool {
	value, found := strings.CutPrefix(strings.TrimSpace(weight), "q=")
	if !found {
		return false
	}
	quality, err := strconv.ParseFloat(value, 64)
	return err == nil && quality == 0
}
