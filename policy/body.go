package policy

import (
	"mime"
	"net/http"
	"strings"
)

// Body has the facts about a request's body for conditions on its content.
type Body struct {
	Bytes []byte
	// Why its content cannot be judged; empty when Bytes is all of it.
	Unclear string
}

// BodyUnclear says why the content of a body with these headers cannot be judged; empty: it can, if it is short enough.
func BodyUnclear(header http.Header) string {
	contentType, contentEncoding := header["Content-Type"], header["Content-Encoding"]
	if hasTwin(header, "Content-Type") || hasTwin(header, "Content-Encoding") {
		return "servers may read the type of the body in different ways"
	}
	if len(contentEncoding) > 1 || len(contentEncoding) == 1 && !strings.EqualFold(contentEncoding[0], "identity") {
		return "the body is encoded"
	}
	if len(contentType) != 1 {
		return "the body has no content type, or several"
	}
	kind, parameters, err := mime.ParseMediaType(contentType[0])
	if err != nil || kind != "application/json" && kind != "text/json" && !strings.HasSuffix(kind, "+json") {
		return "the content type of the body is not JSON"
	}
	if charset := parameters["charset"]; charset != "" && !strings.EqualFold(charset, "utf-8") {
		return "the body is not in UTF-8"
	}
	return ""
}

// document is the parsed body: absent, unclear or a tree.
type document struct {
	absent  bool
	unclear string
	root    *node
}

func (b Body) document() document {
	if b.Unclear != "" {
		return document{unclear: b.Unclear}
	}
	if len(b.Bytes) == 0 {
		return document{absent: true}
	}
	if len(b.Bytes) > DocumentMost {
		return document{unclear: "the body is longer than 256 KiB"}
	}
	root, err := parseDocument(b.Bytes)
	if err != nil {
		return document{unclear: err.Error()}
	}
	return document{root: root}
}
