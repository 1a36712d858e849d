package atollapi

import (
	"encoding/json"
	"net/http"
	"time"

	"atoll/agent/fault"
	"atoll/agent/frames"
	"atoll/agent/search"
)

const (
	matchesMost      = 100_000
	matchesBytesMost = 64 << 20
)

type searchRequest struct {
	Path       string   `json:"path"`
	User       string   `json:"user"`
	Pattern    string   `json:"pattern"`
	Literal    bool     `json:"literal"`
	IgnoreCase bool     `json:"ignore_case"`
	Globs      []string `json:"globs"`
	Hidden     bool     `json:"hidden"`
	MaxMatches int64    `json:"max_matches"`
	MaxBytes   int64    `json:"max_bytes"`
}

type searchEnd struct {
	search.Summary
	Error string `json:"error,omitempty"`
}

func (r *searchRequest) query() (search.Query, error) {
	if r.MaxMatches < 1 || r.MaxMatches > matchesMost || r.MaxBytes < 1 || r.MaxBytes > matchesBytesMost {
		return search.Query{}, fault.New(fault.Invalid, "max_matches is from 1 to %d, and max_bytes to %d", matchesMost, matchesBytesMost)
	}
	pattern, err := search.NewPattern(r.Pattern, r.Literal, r.IgnoreCase)
	if err != nil {
		return search.Query{}, err
	}
	globs, err := search.NewGlobs(r.Globs)
	if err != nil {
		return search.Query{}, err
	}
	return search.Query{Pattern: pattern, Globs: globs, Hidden: r.Hidden, MaxMatches: r.MaxMatches, MaxBytes: r.MaxBytes}, nil
}

func (a *API) search(w http.ResponseWriter, r *http.Request) error {
	var request searchRequest
	if err := decode(w, r, &request); err != nil {
		return err
	}
	if request.Path == "" {
		return fault.New(fault.Invalid, "path is empty")
	}
	work, path, err := a.work(request.User, request.Path)
	if err != nil {
		return err
	}
	query, err := request.query()
	if err != nil {
		return err
	}
	// An answer that has begun has no status any more.
	if _, err := work.Stat(path, true); err != nil {
		return err
	}
	found := make(chan []search.Match)
	ended := make(chan searchEnd, 1)
	go func() {
		summary, err := query.Run(r.Context(), work.Account, path, func(matches []search.Match) {
			select {
			case found <- matches:
			case <-r.Context().Done():
			}
		})
		end := searchEnd{Summary: summary}
		if err != nil {
			end.Error = err.Error()
		}
		ended <- end
	}()
	tellMatches(frames.NewWriter(w), found, ended)
	return nil
}

// tellMatches sends what is found until the search has ended, as it soon does when nobody can be told any more.
func tellMatches(out *frames.Writer, found <-chan []search.Match, ended <-chan searchEnd) {
	alive := time.NewTicker(aliveEvery)
	defer alive.Stop()
	for {
		select {
		case matches := <-found:
			// A client that left ends the search by its context.
			_ = sendMatches(out, matches)
		case <-alive.C:
			_ = out.SendAlive()
			out.Flush()
		case end := <-ended:
			_ = out.SendJSON(frames.End, end)
			return
		}
	}
}

// sendMatches sends as many in a frame as it has room for.
func sendMatches(out *frames.Writer, matches []search.Match) error {
	payload := []byte{'['}
	for _, match := range matches {
		one, err := json.Marshal(match)
		if err != nil {
			return err
		}
		if len(payload)+len(one)+1 > frames.MaxPayload {
			if err := out.SendRaw(frames.Match, append(payload, ']')); err != nil {
				return err
			}
			payload = payload[:1]
		}
		if len(payload) > 1 {
			payload = append(payload, ',')
		}
		payload = append(payload, one...)
	}
	return out.SendRaw(frames.Match, append(payload, ']'))
}
