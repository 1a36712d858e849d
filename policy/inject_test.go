package policy

import (
	"encoding/json"
	"slices"
	"testing"
)

func TestAFormatNamesItsSecrets(t *testing.T) {
	values := map[string][]byte{"gh": []byte("{id}"), "id": []byte("I"), "key": []byte("{}")}
	for _, c := range []struct {
		secret, format, want string
		secrets              []string
	}{
		{"gh", "", "{id}", []string{"gh"}},
		{"gh", "Bearer {}", "Bearer {id}", []string{"gh"}},
		{"", "{id}:{key}", "I:{}", []string{"id", "key"}},
		{"gh", "{{{}}}{gh}{{id}}{id}{id}}}", "{{id}}{id}{id}II}", []string{"gh", "id"}},
	} {
		text, _ := json.Marshal(map[string]any{"action": "allow", "inject": []map[string]string{
			{"secret": c.secret, "into": "header", "key": "a", "format": c.format},
		}})
		rules, err := ParseRules([]json.RawMessage{text})
		if err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		inject := &rules[0].Inject[0]
		if got := inject.Fill(values); got != c.want || !slices.Equal(inject.Secrets(), c.secrets) {
			t.Errorf("%s: %q, %q", text, got, inject.Secrets())
		}
	}
}
