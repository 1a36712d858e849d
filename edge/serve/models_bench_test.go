package serve

import (
	"io"
	"net/http"
	"strings"
	"testing"
)

// BenchmarkAModelAnswers is a whole request, with its reservation and bill. Direct is the same without the gateway.
func BenchmarkAModelAnswers(b *testing.B) {
	w := newModels(b, usd(1e6))
	w.provider("spare", func(writer http.ResponseWriter, request *http.Request) {
		io.Copy(io.Discard, request.Body)
		answerChat(writer)
	})
	body := `{"model":"spare/little","max_completion_tokens":100,"messages":[{"role":"user","content":"` + strings.Repeat("word ", 2000) + `"}]}`
	ask := func(b *testing.B, client *http.Client, url string) {
		for b.Loop() {
			if got := do(b, client, "POST", url, body); got.StatusCode != 200 {
				b.Fatal(got.text)
			}
		}
	}
	b.Run("through", func(b *testing.B) { ask(b, w.client(), modelsURL+"/openai/v1/chat/completions") })
	b.Run("direct", func(b *testing.B) {
		w.mu.Lock()
		address := w.addresses["provider spare"]
		w.mu.Unlock()
		ask(b, http.DefaultClient, "http://"+address+"/")
	})
}
