package serve

import (
	"encoding/json"
	"math"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"atoll/policy"
)

// refusal is an answer of the edge's own. It is an error, so that it can be the reason why an exchange ends.
type refusal struct {
	status  int
	code    string
	message string
	rule    *policy.Rule
	remedy  string
	retry   time.Duration
	ceiling bool // the rule is one of the team's ceiling
}

// Error is the message.
func (r *refusal) Error() string { return r.message }

func denied(verdict *policy.Verdict) *refusal {
	why := &refusal{
		status: http.StatusForbidden, code: "egress_denied", rule: verdict.Rule, remedy: verdict.Remedy,
		message: "the egress policy of this sandbox denies this request: " + verdict.Reason,
	}
	if verdict.Ceiling {
		why.ceiling = true
		why.message = "the egress ceiling of this sandbox's team denies this request: " + verdict.Reason
		why.remedy = "in the ceiling, which the owner of this machine can change: " + verdict.Remedy
	}
	return why
}

// gRPC's own numbers.
var grpcStatus = map[int]int{
	http.StatusForbidden:          7,
	http.StatusMisdirectedRequest: 7,
	http.StatusTooManyRequests:    8,
}

const grpcUnavailable = 14

type refusalBody struct {
	Error   string  `json:"error"`
	Message string  `json:"message"`
	Rule    *string `json:"rule"`
	Ceiling bool    `json:"ceiling"`
	Host    string  `json:"host"`
	Method  string  `json:"method"`
	Path    string  `json:"path"`
	Remedy  string  `json:"remedy"`
}

// write answers a request with the refusal.
func (r *refusal) write(writer http.ResponseWriter, request *http.Request, host, path string) {
	header := writer.Header()
	clear(header)
	header.Set("X-Atoll-Refused", "1")
	if r.retry > 0 {
		header.Set("Retry-After", strconv.Itoa(int(math.Ceil(r.retry.Seconds()))))
	}
	if policy.IsGRPC(request.Header) {
		status, ok := grpcStatus[r.status]
		if !ok {
			status = grpcUnavailable
		}
		header.Set("Content-Type", "application/grpc")
		header.Set("Grpc-Status", strconv.Itoa(status))
		header.Set("Grpc-Message", strings.ReplaceAll(url.QueryEscape(r.message), "+", " "))
		writer.WriteHeader(http.StatusOK)
		return
	}
	body := refusalBody{
		Error: r.code, Message: r.message, Host: host, Method: request.Method, Path: path, Remedy: r.remedy,
		Ceiling: r.ceiling,
	}
	if r.rule != nil {
		label := r.rule.Label()
		body.Rule = &label
	}
	if strings.HasPrefix(request.UserAgent(), "git/") {
		r.plain(writer, &body)
		return
	}
	text, err := json.Marshal(body)
	if err != nil {
		text = []byte(`{"error":"egress_denied"}`)
	}
	r.send(writer, "application/json", append(text, '\n'))
}

// plain says it to git, which prints a plain text and nothing else: otherwise it looks like a refusal of the server's own.
func (r *refusal) plain(writer http.ResponseWriter, body *refusalBody) {
	lines := []string{body.Message}
	if body.Rule != nil {
		lines = append(lines, "rule: "+*body.Rule)
	}
	if body.Remedy != "" {
		lines = append(lines, "remedy: "+body.Remedy)
	}
	r.send(writer, "text/plain; charset=utf-8", []byte(strings.Join(lines, "\n")+"\n"))
}

func (r *refusal) send(writer http.ResponseWriter, kind string, text []byte) {
	header := writer.Header()
	header.Set("Content-Type", kind)
	header.Set("Content-Length", strconv.Itoa(len(text)))
	header.Set("Cache-Control", "no-store")
	writer.WriteHeader(r.status)
	// A guest that is gone does not read it.
	_, _ = writer.Write(text)
}
