package gateway

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"testing"

	"atoll/edge/models"
)

func TestOnlyHarmlessHeadersArePassedOn(t *testing.T) {
	came := http.Header{
		"Authorization": {"x"}, "X-Api-Key": {"x"}, "X_api_key": {"x"}, "Cookie": {"x"}, "Connection": {"keep-alive, X-Mine"}, "X-Mine": {"x"},
		"X-Forwarded-Host": {"x"}, "X-Http-Method-Override": {"DELETE"}, "Transfer-Encoding": {"chunked"}, "Openai-Project": {"x"},
		"Content-Type": {"application/json"}, "Anthropic-Beta": {"a", "b"}, "Idempotency-Key": {"1"},
	}
	got, err := json.Marshal(headers(came))
	const want = `{"Anthropic-Beta":["a","b"],"Content-Type":["application/json"],"Idempotency-Key":["1"],"User-Agent":null}`
	if err != nil || string(got) != want {
		t.Errorf("%s: %v", got, err)
	}
	if len(came["Authorization"]) != 1 {
		t.Error("the guest's own are changed")
	}
	if back := headersBack(http.Header{"Set-Cookie": {"a"}, "Retry-After": {"1"}}); len(back) != 1 {
		t.Errorf("%v goes back", back)
	}
}

func TestARefusalNamesTheBudgetAndWhatIsLeft(t *testing.T) {
	spent := &models.SpentError{
		Budget: "team:a", Left: models.Amount{Tokens: 12, Nanos: 1_234_567_891}, Limits: models.Limits{Tokens: true, Money: true},
	}
	why := unpaid(fmt.Errorf("it says: %w", spent))
	if why.status != http.StatusTooManyRequests || why.message !=
		"it says: the budget team:a does not have what this request may cost at most; left of it: 1.234567 USD, 12 tokens" {
		t.Errorf("%+v", why)
	}
	if why := unpaid(errors.New("gone")); why.status != http.StatusServiceUnavailable {
		t.Errorf("%+v", why)
	}
	for dialect, want := range map[models.Dialect]string{
		models.OpenAI:    `{"error":{"code":"model_not_allowed","message":"no","param":null,"type":"model_not_allowed"}}`,
		models.Anthropic: `{"error":{"code":"model_not_allowed","message":"no","type":"permission_error"},"type":"error"}`,
	} {
		if got := string(notAllowed(errors.New("no")).body(dialect)); got != want {
			t.Errorf("%s", got)
		}
	}
}
