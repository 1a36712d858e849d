package traces

import (
	"sync"
	"time"

	"atoll/edge/models"
)

const (
	// Most spans of a sandbox that end in one second, and that wait to be told. A guest must not flood its trace.
	Most = 50

	textMost   = 128
	hostMost   = 253
	methodMost = 32
)

// Aborted is the error of a request whose answer did not reach its end.
const Aborted = "aborted"

// Span is one request.
type Span struct {
	Parent
	Began    int64  `json:"began_us"` // in microseconds since 1970
	Took     int64  `json:"took_us"`
	Method   string `json:"method"`
	Scheme   string `json:"scheme"`
	Host     string `json:"host"`
	Port     int    `json:"port"`
	Status   int    `json:"status"` // 0: there was no answer
	Action   string `json:"action"` // of the policy; empty: no rule has judged it
	Rule     string `json:"rule"`
	Sent     int64  `json:"sent_bytes"` // of the body
	Received int64  `json:"received_bytes"`
	Error    string `json:"error"` // the code of a refusal, or Aborted
	Model    *Model `json:"model"` // nil: it was no request to a model

	began time.Time
}

// Model is what a request to the gateway of models was.
type Model struct {
	Operation string       `json:"operation"` // as OpenTelemetry names it; empty: it has no name for it
	Asked     string       `json:"asked"`
	Provider  string       `json:"provider"`
	Dialect   string       `json:"dialect"`
	Name      string       `json:"name"`
	Usage     models.Usage `json:"usage"`
	Estimated bool         `json:"estimated"`
}

// Begin has a span begin now.
func Begin(parent Parent) *Span {
	now := time.Now()
	return &Span{Parent: parent, Began: now.UnixMicro(), began: now}
}

// Keeper has the spans of a sandbox until they are told. It is safe for concurrent use.
type Keeper struct {
	mu     sync.Mutex
	spans  []Span
	second int64 // since 1970
	ended  int   // in that second
}

// End has a span end now. It is dropped if there are too many.
func (k *Keeper) End(span *Span) {
	span.Took = time.Since(span.began).Microseconds()
	span.Method, span.Host = cut(span.Method, methodMost), cut(span.Host, hostMost)
	span.Rule = cut(span.Rule, textMost)
	if model := span.Model; model != nil {
		model.Asked, model.Name = cut(model.Asked, textMost), cut(model.Name, textMost)
		model.Provider = cut(model.Provider, textMost)
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if now := time.Now().Unix(); now != k.second {
		k.second, k.ended = now, 0
	}
	if k.ended < Most && len(k.spans) < Most {
		k.ended++
		k.spans = append(k.spans, *span)
	}
}

// Take returns those that have ended since the last call.
func (k *Keeper) Take() []Span {
	k.mu.Lock()
	defer k.mu.Unlock()
	taken := k.spans
	k.spans = nil
	return taken
}

func cut(text string, most int) string { return text[:min(len(text), most)] }
