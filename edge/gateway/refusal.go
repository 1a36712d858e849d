package gateway

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"

	"atoll/edge/models"
)

// refusal is an answer of the gateway's own, which SDKs read as one of the provider.
type refusal struct {
	status  int
	code    string
	message string
	left    *models.Amount // of the budget that refuses
	limits  models.Limits
}

func notAllowed(why error) *refusal {
	return &refusal{status: http.StatusForbidden, code: "model_not_allowed", message: why.Error()}
}

func malformed(why error) *refusal {
	return &refusal{status: http.StatusBadRequest, code: "model_bad_request", message: why.Error()}
}

func unavailable(why error) *refusal {
	return &refusal{status: http.StatusServiceUnavailable, code: "model_gateway_unavailable", message: why.Error()}
}

// unpaid says why budgets do not pay.
func unpaid(why error) *refusal {
	var spent *models.SpentError
	if !errors.As(why, &spent) {
		return unavailable(why)
	}
	var left []string
	if spent.Limits.Money {
		left = append(left, dollars(spent.Left.Nanos)+" USD")
	}
	if spent.Limits.Tokens {
		left = append(left, strconv.FormatInt(spent.Left.Tokens, 10)+" tokens")
	}
	text := why.Error() + "; left of it: " + strings.Join(left, ", ")
	return &refusal{
		status: http.StatusTooManyRequests, code: "model_budget_used", message: text, left: &spent.Left, limits: spent.Limits,
	}
}

// Anthropic's words for kinds of errors.
var anthropicTypes = map[int]string{
	http.StatusBadRequest: "invalid_request_error", http.StatusForbidden: "permission_error", http.StatusNotFound: "not_found_error",
	http.StatusRequestEntityTooLarge: "request_too_large", http.StatusTooManyRequests: "rate_limit_error",
	http.StatusServiceUnavailable: "overloaded_error",
}

// body is the refusal in the form of a provider.
func (r *refusal) body(dialect models.Dialect) []byte {
	kind := r.code
	var content any
	if dialect == models.Anthropic {
		if kind = anthropicTypes[r.status]; kind == "" {
			kind = "api_error"
		}
		content = map[string]any{"type": "error", "error": map[string]any{"type": kind, "message": r.message, "code": r.code}}
	} else {
		content = map[string]any{"error": map[string]any{"message": r.message, "type": kind, "param": nil, "code": r.code}}
	}
	text, err := json.Marshal(content)
	if err != nil {
		return []byte("{}")
	}
	return text
}

func (r *refusal) write(writer http.ResponseWriter, dialect models.Dialect) {
	header, text := writer.Header(), append(r.body(dialect), '\n')
	header.Set("Content-Type", "application/json")
	header.Set("Content-Length", strconv.Itoa(len(text)))
	header.Set("X-Atoll-Refused", "1")
	if r.status == http.StatusTooManyRequests || r.status == http.StatusForbidden {
		header.Set("X-Should-Retry", "false") // the SDKs of both providers heed it
	}
	if r.left != nil {
		tellLeft(header, *r.left, r.limits)
	}
	writer.WriteHeader(r.status)
	// A guest that is gone does not read it.
	_, _ = writer.Write(text)
}

// tellLeft says what is left of the smallest budget.
func tellLeft(header http.Header, left models.Amount, limits models.Limits) {
	if limits.Money {
		header.Set("X-Atoll-Budget-Left-Usd", dollars(left.Nanos))
	}
	if limits.Tokens {
		header.Set("X-Atoll-Budget-Left-Tokens", strconv.FormatInt(left.Tokens, 10))
	}
}

// dollars rounds down to millionths.
func dollars(nanos int64) string {
	const micro, dollar = 1000, 1_000_000_000
	return fmt.Sprintf("%d.%06d", nanos/dollar, nanos%dollar/micro)
}
