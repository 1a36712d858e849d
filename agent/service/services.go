package service

import (
	"io"
	"reflect"
	"slices"
	"strings"
	"sync"

	"atoll/agent/fault"
	"atoll/agent/process"
)

const most = 64

// Begin starts the program of a definition. A check is not listed, and its timeout is its own.
type Begin func(definition *Definition, check bool) (*process.Process, *process.Follower, error)

// Services are all that are defined. Their state is memory, so a copy of the guest goes on where it was.
type Services struct {
	Begin   Begin
	Console io.Writer // the sandbox's log; nil tells nobody

	changing sync.Mutex // one change of the definitions at a time
	mu       sync.Mutex
	known    map[string]*Service // guarded by mu
}

// Define makes these the services: those that are new or changed start, those that are as before are left alone.
func (s *Services) Define(wanted []Definition) error {
	names := map[string]bool{}
	for i := range wanted {
		if err := wanted[i].check(); err != nil {
			return err
		}
		names[wanted[i].Name] = true
	}
	if len(names) != len(wanted) || len(wanted) > most {
		return fault.New(fault.Invalid, "there are too many services, or two of one name")
	}
	s.changing.Lock()
	defer s.changing.Unlock()
	for _, one := range s.all() {
		if !names[one.definition.Name] {
			s.drop(one)
		}
	}
	for _, definition := range wanted {
		s.put(definition)
	}
	return nil
}

// Put defines one service, and starts it unless it is as before.
func (s *Services) Put(definition Definition) error {
	if err := definition.check(); err != nil {
		return err
	}
	s.changing.Lock()
	defer s.changing.Unlock()
	if _, err := s.Get(definition.Name); err != nil && len(s.all()) >= most {
		return fault.New(fault.Invalid, "there are %d services already", most)
	}
	s.put(definition)
	return nil
}

// Remove stops a service and forgets it. One that is not there is no fault.
func (s *Services) Remove(name string) {
	s.changing.Lock()
	defer s.changing.Unlock()
	if one, err := s.Get(name); err == nil {
		s.drop(one)
	}
}

func (s *Services) put(definition Definition) {
	if old, err := s.Get(definition.Name); err == nil {
		if reflect.DeepEqual(old.definition, definition) {
			return
		}
		s.drop(old)
	}
	one := begin(definition, s.Begin, s.Console)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.known == nil {
		s.known = map[string]*Service{}
	}
	s.known[definition.Name] = one
}

func (s *Services) drop(one *Service) {
	one.leave()
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.known, one.definition.Name)
}

// Get finds a service.
func (s *Services) Get(name string) (*Service, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if one, ok := s.known[name]; ok {
		return one, nil
	}
	return nil, fault.New(fault.ServiceMissing, "there is no service %q", name)
}

func (s *Services) all() []*Service {
	s.mu.Lock()
	defer s.mu.Unlock()
	var found []*Service
	for _, one := range s.known {
		found = append(found, one)
	}
	slices.SortFunc(found, func(a, b *Service) int { return strings.Compare(a.definition.Name, b.definition.Name) })
	return found
}

// States tells how each service is, by name.
func (s *Services) States() []Status {
	states := []Status{}
	for _, one := range s.all() {
		states = append(states, one.Status())
	}
	return states
}
