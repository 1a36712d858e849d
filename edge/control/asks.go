package control

// AskBody is a piece of the body of a request that is asked about. All of them come before the Ask.
type AskBody struct {
	Op      string `json:"op"`
	Sandbox string `json:"sandbox"`
	Ask     string `json:"ask"`
	Offset  int    `json:"offset"`
	Part    []byte `json:"part"`
}

// Ask asks somebody to decide about equal requests, which are held meanwhile.
type Ask struct {
	Op             string      `json:"op"`
	Sandbox        string      `json:"sandbox"`
	Ask            string      `json:"ask"`
	Again          bool        `json:"again"`    // an owner was told of it before
	At             float64     `json:"at"`       // when the first one came, in seconds since 1970
	Deadline       float64     `json:"deadline"` // until when there may be an answer, in seconds since 1970
	Rule           int         `json:"rule"`     // its index in the current policy
	Count          int         `json:"count"`    // of the requests
	Digest         string      `json:"digest"`   // of everything that is sent, in hexadecimal
	Scheme         string      `json:"scheme"`
	Method         string      `json:"method"`
	Host           string      `json:"host"`
	Port           int         `json:"port"`
	Path           string      `json:"path"` // with the query, as sent
	Headers        [][2]string `json:"headers"`
	HeadersLeftOut int         `json:"headers_left_out"`
	BodyBytes      int         `json:"body_bytes"`
}

// AskCount says that the number of equal requests has changed.
type AskCount struct {
	Op      string `json:"op"`
	Sandbox string `json:"sandbox"`
	Ask     string `json:"ask"`
	Count   int    `json:"count"`
}

// How an ask ends.
const (
	OutcomeAllowed = "allowed"
	OutcomeDenied  = "denied"
	OutcomeExpired = "expired"
	OutcomeGone    = "gone"    // the guest waits no more
	OutcomeChanged = "changed" // the policy decided instead
)

// AskEnd says that nothing more is to be decided about an ask.
type AskEnd struct {
	Op      string `json:"op"`
	Sandbox string `json:"sandbox"`
	Ask     string `json:"ask"`
	Outcome string `json:"outcome"`
	Passed  int    `json:"passed"`
	Refused int    `json:"refused"`
}

// Unanswered says that an answer was not taken.
type Unanswered struct {
	Op      string `json:"op"`
	Sandbox string `json:"sandbox"`
	Ask     string `json:"ask"`
	Error   string `json:"error"`
}
