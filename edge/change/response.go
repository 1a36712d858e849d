package change

import (
	"bufio"
	"bytes"
	"compress/flate"
	"compress/gzip"
	"compress/zlib"
	"errors"
	"io"
	"net/http"
	"strconv"
	"strings"
)

const (
	scrubMost    = 1 << 20
	unpackedMost = 16 << 20
)

// Encodings limits the encodings of an answer to a request with a secret to those that can be scrubbed.
func Encodings(header http.Header) {
	asked := header.Values("Accept-Encoding")
	if len(asked) == 0 {
		return
	}
	allowed := "identity"
	for name := range strings.SplitSeq(strings.Join(asked, ","), ",") {
		name, quality, _ := strings.Cut(strings.TrimSpace(name), ";")
		if strings.EqualFold(strings.TrimSpace(name), "gzip") && strings.ReplaceAll(quality, " ", "") != "q=0" {
			allowed = "gzip"
		}
	}
	header.Set("Accept-Encoding", allowed)
}

// Response scrubs an answer: its headers, its trailers, and its body unless that is of gRPC, whose messages have lengths of
// their own, or in an encoding that cannot be unpacked here.
func (s *Scrubber) Response(response *http.Response) error {
	if len(s.pairs) == 0 {
		return nil
	}
	s.Header(response.Header)
	if response.Body == nil || response.Body == http.NoBody || response.Request.Method == http.MethodHead {
		return nil
	}
	response.Body = &trailed{response.Body, s, response}
	if strings.HasPrefix(response.Header.Get("Content-Type"), "application/grpc") {
		return nil
	}
	unpack := unpackers[strings.ToLower(response.Header.Get("Content-Encoding"))]
	switch {
	case unpack == nil || unpack.packs && response.StatusCode == http.StatusPartialContent:
		return nil
	case response.ContentLength >= 0 && response.ContentLength <= scrubMost:
		return s.whole(response, unpack)
	case unpack.packs:
		response.Body = s.Reader(&unpacked{inner: response.Body, open: unpack.open})
		response.Header.Del("Content-Encoding")
		response.Header.Del("Content-Length")
		response.ContentLength = -1
	case response.ContentLength >= 0:
		response.Body = &scrubbed{inner: response.Body, scrubber: s.sameLength()}
	default:
		response.Body = s.Reader(response.Body)
	}
	return nil
}

// trailed scrubs the trailers of an answer once its body has ended: they are known then.
type trailed struct {
	io.ReadCloser
	scrubber *Scrubber
	response *http.Response
}

func (t *trailed) Read(into []byte) (int, error) {
	count, err := t.ReadCloser.Read(into)
	if err != nil {
		t.scrubber.Header(t.response.Trailer)
	}
	return count, err
}

// encoding is a way in which a body is written; open reads one that packs.
type encoding struct {
	packs bool
	open  func(io.Reader) (io.Reader, error)
}

var unpackers = map[string]*encoding{
	"":         {},
	"identity": {},
	"gzip":     {packs: true, open: func(in io.Reader) (io.Reader, error) { return gzip.NewReader(in) }},
	"deflate":  {packs: true, open: inflate},
}

// inflate reads HTTP's deflate: a stream of zlib, or, of some servers, a bare one.
func inflate(in io.Reader) (io.Reader, error) {
	buffered := bufio.NewReader(in)
	head, err := buffered.Peek(2)
	if err == nil && head[0]&0x0f == 8 && (int(head[0])<<8|int(head[1]))%31 == 0 {
		return zlib.NewReader(buffered)
	}
	return flate.NewReader(buffered), nil
}

func (s *Scrubber) whole(response *http.Response, by *encoding) error {
	packed := by.packs
	body, err := io.ReadAll(io.LimitReader(response.Body, scrubMost+1))
	if err != nil {
		return err
	}
	if err := response.Body.Close(); err != nil {
		return err
	}
	text := body
	if packed {
		// What cannot be unpacked cannot be read as an echo either.
		if text, err = unpack(body, by); err != nil {
			text, packed = body, false
		}
	}
	if clean := s.Bytes(text); !bytes.Equal(clean, text) {
		body = clean
		if packed {
			response.Header.Del("Content-Encoding")
		}
		response.ContentLength = int64(len(body))
		response.Header.Set("Content-Length", strconv.Itoa(len(body)))
	}
	response.Body = io.NopCloser(bytes.NewReader(body))
	return nil
}

var errUnpacked = errors.New("the answer unpacks to more than 16 MiB")

func unpack(body []byte, by *encoding) ([]byte, error) {
	reader, err := by.open(bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	text, err := io.ReadAll(io.LimitReader(reader, unpackedMost+1))
	if len(text) > unpackedMost {
		return nil, errUnpacked
	}
	return text, err
}

// unpacked opens a body when the first byte of the stream is wanted.
type unpacked struct {
	inner  io.ReadCloser
	open   func(io.Reader) (io.Reader, error)
	reader io.Reader
}

func (u *unpacked) Read(into []byte) (int, error) {
	if u.reader == nil {
		reader, err := u.open(u.inner)
		if err != nil {
			return 0, err
		}
		u.reader = reader
	}
	return u.reader.Read(into)
}

func (u *unpacked) Close() error { return u.inner.Close() }
