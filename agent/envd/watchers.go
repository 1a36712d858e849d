package envd

import (
	"crypto/rand"
	"net/http"
	"sync"
	"time"

	"atoll/agent/files"
	"atoll/agent/watch"
)

const (
	watchersMost = 1024
	eventsMost   = 20_000
)

var eventTypes = map[string]string{
	watch.Create: "EVENT_TYPE_CREATE",
	watch.Write:  "EVENT_TYPE_WRITE",
	watch.Remove: "EVENT_TYPE_REMOVE",
	watch.Rename: "EVENT_TYPE_RENAME",
	watch.Chmod:  "EVENT_TYPE_CHMOD",
}

type watchRequest struct {
	Path         string `json:"path"`
	Recursive    bool   `json:"recursive"`
	IncludeEntry bool   `json:"includeEntry"`
}

type fileEvent struct {
	Name  string `json:"name"`
	Type  string `json:"type"`
	Entry *entry `json:"entry,omitempty"`
}

// watching is a watch with what is needed to tell its events.
type watching struct {
	*watch.Watcher
	api          *API
	work         files.Work
	root         string
	includeEntry bool
}

func (a *API) watch(r *http.Request, request *watchRequest) (*watching, error) {
	work, path, err := a.place(r, request.Path)
	if err != nil {
		return nil, err
	}
	watcher, err := watch.Start(work.Account, path, request.Recursive)
	if err != nil {
		return nil, err
	}
	return &watching{watcher, a, work, path, request.IncludeEntry}, nil
}

func (w *watching) event(from watch.Event) fileEvent {
	event := fileEvent{Name: from.Path, Type: eventTypes[from.Kind]}
	if w.includeEntry && from.Kind != watch.Remove {
		// What has gone again has no entry.
		event.Entry, _ = w.api.entryOf(w.work, w.root+"/"+from.Path)
	}
	return event
}

func (a *API) watchDir(r *http.Request, out *stream) error {
	var request watchRequest
	if err := receive(r.Body, &request); err != nil {
		return err
	}
	w, err := a.watch(r, &request)
	if err != nil {
		return err
	}
	defer w.Close()
	if err := out.write(0, []byte(`{"start":{}}`)); err != nil {
		return err
	}
	every := keepaliveOf(r)
	alive := time.NewTicker(every)
	defer alive.Stop()
	var over <-chan time.Time
	if limit := deadlineOf(r); limit > 0 {
		timer := time.NewTimer(limit)
		defer timer.Stop()
		over = timer.C
	}
	for err == nil {
		out.flush()
		select {
		case event, open := <-w.Events:
			if !open {
				return nil
			}
			err = out.sendJSON(map[string]any{"filesystem": w.event(event)})
			alive.Reset(every)
		case <-alive.C:
			err = out.write(0, []byte(`{"keepalive":{}}`))
		case <-over:
			return &rpcError{"deadline_exceeded", "the stream's time is over"}
		case <-r.Context().Done():
			return nil
		}
	}
	return err
}

// watchers keep the events of watches that are asked now and then.
type watchers struct {
	mu   sync.Mutex
	byID map[string]*collector
}

type collector struct {
	*watching
	mu     sync.Mutex
	events []fileEvent
}

func (c *collector) run() {
	for from := range c.Events {
		event := c.event(from)
		c.mu.Lock()
		if len(c.events) < eventsMost {
			c.events = append(c.events, event)
		}
		c.mu.Unlock()
	}
}

func (c *collector) drain() []fileEvent {
	c.mu.Lock()
	defer c.mu.Unlock()
	events := c.events
	c.events = nil
	if events == nil {
		return []fileEvent{}
	}
	return events
}

func (a *API) createWatcher(r *http.Request, request *watchRequest) (any, error) {
	a.watchers.mu.Lock()
	full := len(a.watchers.byID) >= watchersMost
	a.watchers.mu.Unlock()
	if full {
		return nil, &rpcError{"resource_exhausted", "too many watchers; remove some"}
	}
	w, err := a.watch(r, request)
	if err != nil {
		return nil, err
	}
	c := &collector{watching: w}
	go c.run()
	id := "w" + rand.Text()
	a.watchers.mu.Lock()
	defer a.watchers.mu.Unlock()
	if a.watchers.byID == nil {
		a.watchers.byID = map[string]*collector{}
	}
	a.watchers.byID[id] = c
	return map[string]string{"watcherId": id}, nil
}

type watcherRequest struct {
	WatcherID string `json:"watcherId"`
}

func (a *API) watcher(id string, remove bool) (*collector, error) {
	a.watchers.mu.Lock()
	defer a.watchers.mu.Unlock()
	c, ok := a.watchers.byID[id]
	if !ok {
		return nil, &rpcError{"not_found", "watcher with id " + id + " not found"}
	}
	if remove {
		delete(a.watchers.byID, id)
	}
	return c, nil
}

func (a *API) getWatcherEvents(_ *http.Request, request *watcherRequest) (any, error) {
	c, err := a.watcher(request.WatcherID, false)
	if err != nil {
		return nil, err
	}
	return map[string]any{"events": c.drain()}, nil
}

func (a *API) removeWatcher(_ *http.Request, request *watcherRequest) (any, error) {
	c, err := a.watcher(request.WatcherID, true)
	if err != nil {
		return nil, err
	}
	c.Close()
	return struct{}{}, nil
}
