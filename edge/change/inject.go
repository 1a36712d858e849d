package change

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"net/http"
	"net/url"
	"strings"

	"atoll/policy"
)

// Target is a request that is about to be sent.
type Target struct {
	Scheme string
	Name   string // of the host; empty: only its address is known
	Port   int
	Header http.Header
	Path   string
	Query  string
	Body   []byte // for secrets that go into JSON
	// What was put in, as it must not come back.
	Injected []Echo
}

// Echo is a text that is replaced where it comes back.
type Echo struct {
	Name string
	Text []byte
}

// NeedsBody tells whether a rule puts a secret into bodies.
func NeedsBody(rule *policy.Rule) bool {
	for _, each := range rule.Inject {
		if each.Into == "json" {
			return true
		}
	}
	return false
}

// Apply makes the changes of a rule. An error says why the request must not be sent; it holds no secret.
func Apply(rule *policy.Rule, secrets *Secrets, target *Target) error {
	for _, name := range rule.RemoveHeaders {
		policy.RemoveHeader(target.Header, name)
	}
	for name, value := range rule.SetHeaders {
		policy.RemoveHeader(target.Header, name)
		target.Header.Set(name, value)
	}
	for _, each := range rule.Inject {
		if target.Scheme != "https" && !rule.NamesPort(target.Port) {
			return fmt.Errorf("the secret %s goes out unencrypted only to a port that the rule names", each.Title())
		}
		values, err := target.use(secrets, &each)
		if err == nil {
			err = target.inject(&each, values)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// use takes the values of what is put in. They must not come back, also if they cannot be sent.
func (t *Target) use(secrets *Secrets, into *policy.Inject) (map[string][]byte, error) {
	values := map[string][]byte{}
	for _, name := range into.Secrets() {
		if !secrets.May(name, t.Name) {
			return nil, fmt.Errorf("the secret %s may not be sent to this host", name)
		}
		value, ok := secrets.Use(name)
		if !ok {
			return nil, fmt.Errorf("there is no secret %s that this sandbox may use", name)
		}
		values[name] = value
		t.Injected = append(t.Injected, Echo{name, value})
		if len(value) == 0 || bytes.ContainsAny(value, "\r\n\x00") {
			return nil, fmt.Errorf("the secret %s is empty or has a line break, so it cannot be sent", name)
		}
	}
	return values, nil
}

func (t *Target) inject(into *policy.Inject, values map[string][]byte) error {
	text := into.Fill(values)
	switch into.Into {
	case "header":
		policy.RemoveHeader(t.Header, into.Key)
		t.Header.Set(into.Key, text)
	case "basic":
		token := base64.StdEncoding.EncodeToString([]byte(into.Key + ":" + text))
		policy.RemoveHeader(t.Header, "Authorization")
		t.Header.Set("Authorization", "Basic "+token)
		t.Injected = append(t.Injected, Echo{into.Title(), []byte(token)})
	case "query":
		t.Query = policy.WithoutParameter(t.Query, into.Key)
		if t.Query != "" {
			t.Query += "&"
		}
		t.Query += url.QueryEscape(into.Key) + "=" + url.QueryEscape(text)
	case "path":
		t.Path = strings.ReplaceAll(t.Path, into.Key, url.PathEscape(text))
	case "json":
		body, err := policy.SetText(t.Body, into.Key, text)
		if err != nil {
			return fmt.Errorf("the secret %s cannot go into the body: %w", into.Title(), err)
		}
		t.Body = body
	}
	return nil
}
