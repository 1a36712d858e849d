package models

import (
	"net/http"
	"strings"
)

// Dialect is whose API a request speaks.
type Dialect string

// The dialects.
const (
	OpenAI    Dialect = "openai"
	Anthropic Dialect = "anthropic"
)

// Kind is what a request asks for.
type Kind int

// The kinds of requests. Only those with a usage that is known how to read have a price.
const (
	Unknown    Kind = iota
	Chat            // OpenAI's chat completions
	Responses       // OpenAI's responses
	Embeddings      // OpenAI's
	Messages        // Anthropic's
	Count           // Anthropic's counting of tokens, which is free
	List            // of the models, which the gateway has itself
)

var kinds = map[Dialect]map[string]Kind{
	OpenAI: {
		"POST /chat/completions": Chat, "POST /responses": Responses, "POST /embeddings": Embeddings, "GET /models": List,
	},
	Anthropic: {"POST /messages": Messages, "POST /messages/count_tokens": Count, "GET /models": List},
}

// KindOf tells what a request asks for, by its path below the provider's URL.
func KindOf(dialect Dialect, method, path string) Kind { return kinds[dialect][method+" "+path] }

// IsPriced tells whether the kind has a usage.
func (k Kind) IsPriced() bool { return k == Chat || k == Responses || k == Embeddings || k == Messages }

// Place is a guest's path: a dialect, and the path below the provider's URL.
type Place struct{ First, Below string }

const versionBelow = "/v1/"

// PlaceOf reads a path such as /openai/v1/responses. It is false for one that servers may read in several ways.
func PlaceOf(path string) (Place, bool) {
	if strings.ContainsAny(path, "%\\;") || strings.Contains(path, "//") || strings.Contains(path, "/.") {
		return Place{}, false
	}
	first, rest, _ := strings.Cut(strings.TrimPrefix(path, "/"), "/")
	below, isVersion := strings.CutPrefix("/"+rest, versionBelow)
	if first == "" || !isVersion || below == "" {
		return Place{}, false
	}
	return Place{first, "/" + below}, true
}

func isDialect(text string) bool { return text == string(OpenAI) || text == string(Anthropic) }

// Bodies says whether a method comes with a body that may name a model.
func Bodies(method string) bool { return method != http.MethodGet && method != http.MethodHead }
