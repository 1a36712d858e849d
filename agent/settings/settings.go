// Package settings holds what the host told the agent: the environment, the default user and directory.
package settings

import (
	"maps"
	"slices"
	"sync"

	"atoll/agent/user"
)

// DefaultPath is the search path of programs whose environment names none.
const DefaultPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// Settings are safe for concurrent use.
type Settings struct {
	Users *user.Database

	mu         sync.RWMutex
	env        map[string]string
	caEnv      map[string]string
	user       string
	cwd        string
	generation int64
	changes    int
	profile    profile
}

// New has nothing set.
func New(users *user.Database) *Settings {
	return &Settings{Users: users, env: map[string]string{}, profile: profile{root: users.Root}}
}

// Change holds what to set; nil leaves a value as it is.
type Change struct {
	Env        map[string]string
	CAEnv      map[string]string
	User       *string
	Cwd        *string
	Generation *int64
}

// Apply sets what the change holds.
func (s *Settings) Apply(change Change) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if change.Env != nil {
		s.env = maps.Clone(change.Env)
		s.changes++
		s.profile.keep(s.env["PATH"])
	}
	if change.CAEnv != nil {
		s.caEnv = maps.Clone(change.CAEnv)
		s.changes++
	}
	set(&s.user, change.User)
	set(&s.cwd, change.Cwd)
	set(&s.generation, change.Generation)
}

func set[T any](target *T, value *T) {
	if value != nil {
		*target = *value
	}
}

// Generation is the number that the host gave this life of the guest.
func (s *Settings) Generation() int64 {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.generation
}

// Env is the environment that the host set for every program.
func (s *Settings) Env() map[string]string {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return maps.Clone(s.env)
}

// changed counts how often the environment was set.
func (s *Settings) changed() int {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.changes
}

// Account finds a user; an empty name is the default user.
func (s *Settings) Account(name string) (*user.Account, error) {
	if name != "" {
		return s.Users.Lookup(name)
	}
	s.mu.RLock()
	name = s.user
	s.mu.RUnlock()
	if name != "" {
		return s.Users.Lookup(name)
	}
	if account, err := s.Users.Lookup("user"); err == nil && (account.IsAgent() || agentIsRoot) {
		return account, nil
	}
	return s.Users.Lookup(agentID)
}

// Cwd is where a user's programs start: the directory that the host set, or the home.
// The home of the default user is for that user alone.
func (s *Settings) Cwd(account *user.Account) string {
	s.mu.RLock()
	cwd, name := s.cwd, s.user
	s.mu.RUnlock()
	if cwd == "" {
		return account.Home
	}
	if name != "" && name != account.Name {
		if owner, err := s.Users.Lookup(name); err == nil && owner.Home == cwd {
			return account.Home
		}
	}
	return cwd
}

// base is what every program gets from its user.
func base(account *user.Account) map[string]string {
	return map[string]string{
		"PATH": DefaultPath, "HOME": account.Home, "USER": account.Name,
		"LOGNAME": account.Name, "SHELL": account.Shell,
	}
}

// Environment is that of a user's programs: the user's own, the host's, the request's.
func (s *Settings) Environment(account *user.Account, request map[string]string) []string {
	env := base(account)
	s.overlay(env)
	maps.Copy(env, request)
	return list(env)
}

func (s *Settings) overlay(env map[string]string) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	maps.Copy(env, s.caEnv)
	maps.Copy(env, s.env)
}

func list(env map[string]string) []string {
	lines := make([]string, 0, len(env))
	for name, value := range env {
		lines = append(lines, name+"="+value)
	}
	slices.Sort(lines)
	return lines
}
