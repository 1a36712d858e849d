package change

import (
	"bytes"
	"compress/gzip"
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

// Encodings limits what an answer to a request with a secret may be encoded with to what can be scrubbed.
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

// Response scrubs an answer: its headers, and its body if it is short or has no known length. Streams of events and of
// gRPC pass as they are.
func (s *Scrubber) Response(response *http.Response) error {
	if len(s.pairs) == 0 {
		return nil
	}
	s.Header(response.Header)
	if response.Body == nil || response.Body == http.NoBody || response.Request.Method == http.MethodHead ||
		response.ContentLength > scrubMost || isStream(response.Header) {
		return nil
	}
	packed := false
	switch encoding := strings.ToLower(response.Header.Get("Content-Encoding")); encoding {
	case "", "identity":
	case "gzip":
		packed = true
	default:
		return nil
	}
	if response.ContentLength >= 0 {
		return s.whole(response, packed)
	}
	body := response.Body
	if packed {
		body = &unpacked{inner: body}
		response.Header.Del("Content-Encoding")
	}
	response.Body = s.Reader(body)
	return nil
}

func isStream(header http.Header) bool {
	kind := header.Get("Content-Type")
	return strings.HasPrefix(kind, "text/event-stream") || strings.HasPrefix(kind, "application/grpc")
}

func (s *Scrubber) whole(response *http.Response, packed bool) error {
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
		if text, err = unpack(body); err != nil {
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

func unpack(body []byte) ([]byte, error) {
	reader, err := gzip.NewReader(bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	text, err := io.ReadAll(io.LimitReader(reader, unpackedMost+1))
	if len(text) > unpackedMost {
		return nil, errUnpacked
	}
	return text, err
}

// unpacked opens gzip when the first byte of the stream is wanted.
type unpacked struct {
	inner  io.ReadCloser
	reader *gzip.Reader
}

func (u *unpacked) Read(into []byte) (int, error) {
	if u.reader == nil {
		reader, err := gzip.NewReader(u.inner)
		if err != nil {
			return 0, err
		}
		u.reader = reader
	}
	return u.reader.Read(into)
}

func (u *unpacked) Close() error { return u.inner.Close() }
