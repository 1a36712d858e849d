package envd

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"atoll/agent/fault"
)

const (
	messageMost    = 64 << 20
	envelopeBytes  = 5
	flagCompressed = 1
	flagEnd        = 2

	unaryType  = "application/json"
	streamType = "application/connect+json"
)

// rpcError is an error of the Connect protocol.
type rpcError struct {
	Code    string `json:"code"`
	Message string `json:"message"`
}

func (e *rpcError) Error() string { return e.Message }

func rpcErrorOf(err error) *rpcError {
	var known *rpcError
	if errors.As(err, &known) {
		return known
	}
	f := fault.Of(err)
	return &rpcError{Code: rpcCode(f.Code), Message: f.Message}
}

func rpcCode(code fault.Code) string {
	switch code {
	case fault.Invalid, fault.FileFailed, fault.CwdMissing, fault.ProgramMissing, fault.NotADirectory, fault.IsADirectory:
		return "invalid_argument"
	case fault.UserUnknown:
		return "unauthenticated"
	case fault.Denied:
		return "permission_denied"
	case fault.ProcessNotFound, fault.FileMissing:
		return "not_found"
	case fault.FileTaken:
		return "already_exists"
	case fault.NoSpace:
		return "resource_exhausted"
	case fault.Busy:
		return "aborted"
	}
	return "internal"
}

func rpcStatus(code string) int {
	switch code {
	case "invalid_argument", "failed_precondition":
		return http.StatusBadRequest
	case "unauthenticated":
		return http.StatusUnauthorized
	case "permission_denied":
		return http.StatusForbidden
	case "not_found":
		return http.StatusNotFound
	case "already_exists", "aborted":
		return http.StatusConflict
	case "resource_exhausted":
		return http.StatusTooManyRequests
	case "unimplemented":
		return http.StatusNotImplemented
	case "deadline_exceeded":
		return http.StatusGatewayTimeout
	}
	return http.StatusInternalServerError
}

// unary serves a procedure with one request and one answer.
func unary[Request any](serve func(*http.Request, *Request) (any, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if !isType(r, unaryType) {
			w.Header().Set("Accept-Post", unaryType)
			w.WriteHeader(http.StatusUnsupportedMediaType)
			return
		}
		request := new(Request)
		err := json.NewDecoder(http.MaxBytesReader(w, r.Body, messageMost)).Decode(request)
		if err != nil && !errors.Is(err, io.EOF) {
			err = fault.New(fault.Invalid, "the request's message: %v", err)
		} else {
			var result any
			if result, err = serve(r, request); err == nil {
				answer(w, http.StatusOK, result)
				return
			}
		}
		failed := rpcErrorOf(err)
		answer(w, rpcStatus(failed.Code), failed)
	}
}

func isType(r *http.Request, wanted string) bool {
	kind, _, _ := strings.Cut(r.Header.Get("Content-Type"), ";")
	return strings.EqualFold(strings.TrimSpace(kind), wanted)
}

func answer(w http.ResponseWriter, status int, body any) {
	text, err := json.Marshal(body)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", unaryType)
	w.Header().Set("Content-Length", strconv.Itoa(len(text)))
	w.WriteHeader(status)
	// A client that left needs no answer.
	_, _ = w.Write(text)
}

// stream is the answer of a streaming procedure.
type stream struct {
	out     http.ResponseWriter
	flusher http.Flusher
	frame   []byte
}

// streaming serves a procedure whose answer, or request, is a stream of envelopes.
func streaming(serve func(*http.Request, *stream) error) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if !isType(r, streamType) {
			w.Header().Set("Accept-Post", streamType)
			w.WriteHeader(http.StatusUnsupportedMediaType)
			return
		}
		w.Header().Set("Content-Type", streamType)
		flusher, _ := w.(http.Flusher)
		s := &stream{out: w, flusher: flusher}
		end := []byte("{}")
		if err := serve(r, s); err != nil {
			end, _ = json.Marshal(map[string]*rpcError{"error": rpcErrorOf(err)})
		}
		// A client that left needs no end.
		_ = s.write(flagEnd, end)
	}
}

func (s *stream) write(flags byte, message []byte) error {
	s.begin()
	s.frame = append(s.frame, message...)
	return s.sendFlagged(flags)
}

// begin starts a frame, whose message the caller appends to s.frame before send.
func (s *stream) begin() { s.frame = append(s.frame[:0], 0, 0, 0, 0, 0) }

func (s *stream) send() error { return s.sendFlagged(0) }

func (s *stream) sendFlagged(flags byte) error {
	s.frame[0] = flags
	binary.BigEndian.PutUint32(s.frame[1:], uint32(len(s.frame)-envelopeBytes))
	_, err := s.out.Write(s.frame)
	return err
}

func (s *stream) sendJSON(message any) error {
	text, err := json.Marshal(message)
	if err != nil {
		return err
	}
	return s.write(0, text)
}

func (s *stream) flush() {
	if s.flusher != nil {
		s.flusher.Flush()
	}
}

// receive reads one message of a request's stream; it returns io.EOF after the last.
func receive(body io.Reader, into any) error {
	var head [envelopeBytes]byte
	if _, err := io.ReadFull(body, head[:]); err != nil {
		if errors.Is(err, io.EOF) {
			return io.EOF
		}
		return fault.New(fault.Invalid, "the request's stream is cut: %v", err)
	}
	length := binary.BigEndian.Uint32(head[1:])
	if head[0]&flagCompressed != 0 || length > messageMost {
		return fault.New(fault.Invalid, "the request's message is compressed or too long")
	}
	if head[0]&flagEnd != 0 {
		return io.EOF
	}
	err := json.NewDecoder(io.LimitReader(body, int64(length))).Decode(into)
	if err != nil && !(errors.Is(err, io.EOF) && length == 0) {
		return fault.New(fault.Invalid, "the request's message: %v", err)
	}
	return nil
}

// deadlineOf is how long the client gave the call; 0 is for ever.
func deadlineOf(r *http.Request) time.Duration {
	ms, err := strconv.ParseInt(r.Header.Get("Connect-Timeout-Ms"), 10, 64)
	if err != nil || ms <= 0 {
		return 0
	}
	return time.Duration(ms) * time.Millisecond
}

const (
	defaultKeepalive = 90 * time.Second
	mostKeepalive    = 3600
)

func keepaliveOf(r *http.Request) time.Duration {
	seconds, err := strconv.Atoi(r.Header.Get("Keepalive-Ping-Interval"))
	if err != nil || seconds <= 0 || seconds > mostKeepalive {
		return defaultKeepalive
	}
	return time.Duration(seconds) * time.Second
}
