package models

import (
	"fmt"
	"io"
	"strings"
	"testing"
)

func sent(t *testing.T, ask *Ask, model string, bound int64) string {
	t.Helper()
	body, size := ask.Body(model, bound)
	text, err := io.ReadAll(body)
	if err != nil || int64(len(text)) != size {
		t.Fatalf("%d bytes, not %d: %v", len(text), size, err)
	}
	return string(text)
}

func TestARequestIsSentAsItCameButForWhatIsSet(t *testing.T) {
	for _, c := range []struct {
		kind     Kind
		body     string
		model    string
		bound    int64
		want     string
		most     int64
		isStream bool
	}{
		{Chat, `{"model":"m","max_tokens":5}`, "m", 9, `{"model":"m","max_tokens":5}`, 5, false},
		{Chat, ` {"model" : "m" , "n":2, "max_tokens":5, "max_completion_tokens":7} `, "big/x", 9,
			` {"model" : "big/x" , "n":2, "max_tokens":5, "max_completion_tokens":7} `, 14, false},
		{Chat, `{"model":"m","n":3}`, "m", 9, `{"model":"m","n":3,"max_completion_tokens":3}`, 0, false},
		{Chat, `{"model":"m","max_tokens":null}`, "m", 0, `{"model":"m","max_tokens":null}`, 0, false},
		{Chat, `{"model":"m","max_completion_tokens":null}`, "m", 8, `{"model":"m","max_completion_tokens":8}`, 0, false},
		{Chat, `{"model":"m","stream":true}`, "m", 0, `{"model":"m","stream":true,"stream_options":{"include_usage":true}}`, 0, true},
		{Chat, `{"stream":true,"stream_options":{"a":[{}, "}"],"include_usage":false},"model":"m"}`, "m", 0,
			`{"stream":true,"stream_options":{"a":[{}, "}"],"include_usage":true},"model":"m"}`, 0, true},
		{Chat, `{"model":"m","stream":true,"stream_options":{"include_usage":true}}`, "m", 0,
			`{"model":"m","stream":true,"stream_options":{"include_usage":true}}`, 0, true},
		{Responses, `{"model":"\u006d","input":"\"{"}`, "n", 6, `{"model":"n","input":"\"{","max_output_tokens":6}`, 0, false},
		{Embeddings, `{"model":"m","input":[1,2]}`, "m", 0, `{"model":"m","input":[1,2]}`, 0, false},
		{Messages, `{"model":"m"}`, "m", 6, `{"model":"m"}`, 0, false},
		{Messages, `{"model":"m","max_tokens":6,"stream":true}`, "m", 0, `{"model":"m","max_tokens":6,"stream":true}`, 6, true},
		{Count, `{"model":"m","n":"x"}`, "m", 0, `{"model":"m","n":"x"}`, 0, false},
	} {
		ask, err := ReadAsk(c.kind, []byte(c.body))
		if err != nil {
			t.Errorf("%s: %v", c.body, err)
			continue
		}
		if got := sent(t, ask, c.model, c.bound); got != c.want {
			t.Errorf("%s is sent as %s, not %s", c.body, got, c.want)
		}
		if ask.Model != "m" || ask.Most != c.most || ask.Stream != c.isStream {
			t.Errorf("%s is read as %+v", c.body, ask)
		}
	}
}

func TestARequestThatCannotBeReadIsRefused(t *testing.T) {
	for _, body := range []string{
		``, ` `, `[]`, `1`, `{`, `{}`, `{"model":""}`, `{"model":1}`, `{"model":"a","model":"b"}`, `{"model":"a","MODEL":"b"}`,
		`{"model":"a","\u006dodel":"b"}`, `{"model":"a","n":0}`, `{"model":"a","n":1e9}`, `{"model":"a","n":100000}`,
		`{"model":"a","max_tokens":-1}`, `{"model":"a","max_tokens":1.5}`, `{"model":"a","stream":1}`,
		`{"model":"a","stream":true,"stream_options":[]}`, "\xef\xbb\xbf" + `{"model":"a"}`,
	} {
		if ask, err := ReadAsk(Chat, []byte(body)); err == nil {
			t.Errorf("%q is read as %+v", body, ask)
		}
	}
	if _, err := ReadAsk(Responses, []byte(`{"model":"a","background":true}`)); err == nil {
		t.Error("a request in the background is read")
	}
}

func FuzzARequestStaysJSON(f *testing.F) {
	f.Add(`{"model":"m","stream":true,"stream_options":{}}`)
	f.Add(`{"a":{"b":[1,"\\\""]},"model":"m" , "n":1 }`)
	f.Fuzz(func(t *testing.T, body string) {
		ask, err := ReadAsk(Chat, []byte(body))
		if err != nil {
			return
		}
		again, err := ReadAsk(Chat, []byte(sent(t, ask, "other", 7)))
		if err != nil || again.Model != "other" || again.Stream && again.Adds || again.Most == 0 {
			t.Fatalf("%q: %+v, %v", body, again, err)
		}
	})
}

func TestAPathNamesAProviderAndAKind(t *testing.T) {
	for path, want := range map[string]string{
		"/openai/v1/chat/completions": "openai 1", "/openai/v1/responses": "openai 2", "/openai/v1/embeddings": "openai 3",
		"/openai/v1/files": "openai 0", "/openai/v1": "", "/openai/v1/": "", "/openai/v2/responses": "", "/": "", "": "",
		"/openai/v1/../responses": "", "/openai/v1/%72esponses": "", "/openai//v1/responses": "", "/openai/v1/a\\b": "",
		"//v1/responses": "", "/openai/v1/responses/": "openai 0",
	} {
		got := ""
		if place, ok := PlaceOf(path); ok {
			got = fmt.Sprint(place.First, " ", KindOf(OpenAI, "POST", place.Below))
		}
		if got != want {
			t.Errorf("%s is %q, not %q", path, got, want)
		}
	}
	if KindOf(Anthropic, "POST", "/messages") != Messages || KindOf(Anthropic, "GET", "/messages") != Unknown ||
		KindOf(Anthropic, "POST", "/messages/count_tokens") != Count || KindOf(Anthropic, "GET", "/models") != List {
		t.Error("the paths of Anthropic are read otherwise")
	}
}

func TestPatternsMatchNames(t *testing.T) {
	for _, c := range []struct {
		pattern, name string
		want          bool
	}{
		{"cheap", "cheap", true}, {"cheap", "cheaper", false}, {"openai/gpt-*", "openai/gpt-5", true}, {"*", "a/b", true},
		{"openai/*-mini", "openai/gpt-5-mini", true}, {"openai/*-mini", "openai/gpt-5-minx", false}, {"a*a", "a", false},
		{"a*b*c", "aXbYc", true}, {"a*b*c", "acb", false}, {"", "a", false}, {"", "", true}, {"**", "a", true},
	} {
		if got := matches(c.pattern, c.name); got != c.want {
			t.Errorf("%s matches %s: %v", c.pattern, c.name, got)
		}
	}
}

func TestANameIsOneOfSeveralModels(t *testing.T) {
	catalogue := &Catalogue{
		Providers: map[string]*Provider{},
		Aliases:   map[string][]Entry{"cheap": {{"openai", "gpt-5-mini"}, {"anthropic", "haiku"}, {"gone", "x"}, {"router", "meta/llama"}}},
		Prices:    map[string]map[string]Price{"openai": {"gpt-5-mini": {Input: 1}, "gpt-5": {Input: 2}}},
	}
	for name, kind := range map[string]Dialect{"openai": OpenAI, "anthropic": Anthropic, "router": OpenAI} {
		provider, err := NewProvider(name, kind, "https://"+name+".example/v1/", 1)
		if err != nil || provider.Path != "/v1" || provider.Port != 443 || !provider.Secure {
			t.Fatal(provider, err)
		}
		catalogue.Providers[name] = provider
	}
	catalogue.Order = []string{"openai", "router", "anthropic"}
	for _, c := range []struct{ first, asked, allow, want string }{
		{"openai", "cheap", "cheap", "openai gpt-5-mini 1, router meta/llama -"}, {"anthropic", "cheap", "cheap", "anthropic haiku -"},
		{"openai", "cheap", "openai/*", ErrNotAllowed.Error()}, {"openai", "gpt-5", "openai/gpt-*", "openai gpt-5 2"},
		{"openai", "openai/gpt-5", "openai/gpt-*", "openai gpt-5 2"}, {"openai", "gpt-5", "cheap", ErrNotAllowed.Error()},
		{"openai", "gpt-5-2026-08-07", "*", "openai gpt-5-2026-08-07 2"}, {"openai", "gpt-5-20260807", "*", "openai gpt-5-20260807 2"},
		{"openai", "router/meta/llama", "router/*", "router meta/llama -"},
		{"openai", "anthropic/haiku", "*", ErrNoProvider.Error()}, {"router", "gpt-5", "*", ErrNoProvider.Error()},
	} {
		got := ""
		target, err := catalogue.Target(c.first)
		var found []Candidate
		if err == nil {
			found, err = catalogue.Choose(&Access{Allow: strings.Split(c.allow, ",")}, target, c.asked)
		}
		if err != nil {
			got = err.Error()
		}
		for i, each := range found {
			price := "-"
			if each.Price != nil {
				price = fmt.Sprint(each.Price.Input)
			}
			if i > 0 {
				got += ", "
			}
			got += each.Provider.Name + " " + each.Model + " " + price
		}
		if got != c.want {
			t.Errorf("%s %s is %q, not %q", c.first, c.asked, got, c.want)
		}
	}
	target, _ := catalogue.Target("openai")
	if got := fmt.Sprint(catalogue.Names(&Access{Allow: []string{"*"}}, target)); got != "[{atoll cheap} {openai gpt-5} {openai gpt-5-mini}]" {
		t.Error("the names are", got)
	}
}

func TestAProviderHasAnUnclearURL(t *testing.T) {
	for _, url := range []string{"", "ftp://a", "https://", "https://a:0", "https://a:99999", "https://u:p@a", "https://a?b=c", "a.example", ":"} {
		if provider, err := NewProvider("p", OpenAI, url, 1); err == nil {
			t.Errorf("%q is %+v", url, provider)
		}
	}
	if _, err := NewProvider("p", "other", "https://a", 1); err == nil {
		t.Error("another kind is one")
	}
}
