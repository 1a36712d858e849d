package system

import (
	"encoding/base64"
	"encoding/json"
)

// Where Chromium and Chrome, which have authorities of their own, read what the machine's owner decides.
var browserPolicies = []string{
	"/etc/chromium/policies/managed/atoll.json",
	"/etc/opt/chrome/policies/managed/atoll.json",
	"/etc/opt/chrome_for_testing/policies/managed/atoll.json",
}

// browsers tells them to trust certificates.
func (s *System) browsers(certificates [][]byte) error {
	text := ""
	if len(certificates) > 0 {
		trusted := make([]string, len(certificates))
		for index, raw := range certificates {
			trusted[index] = base64.StdEncoding.EncodeToString(raw)
		}
		policy, err := json.Marshal(map[string]any{"CACertificates": trusted})
		if err != nil {
			return err
		}
		text = string(policy) + "\n"
	}
	for _, path := range browserPolicies {
		if err := s.put(path, text, 0o644); err != nil {
			return err
		}
	}
	return nil
}
