package settings

import (
	"bytes"
	"maps"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"atoll/agent/frames"
	"atoll/agent/process"
	"atoll/agent/user"
)

var (
	agentIsRoot = os.Geteuid() == 0
	agentID     = strconv.Itoa(os.Geteuid())
)

const (
	loginTimeout = 10 * time.Second
	loginMost    = 1 << 20
	loginMark    = "\x00atoll\x00"
	// The environment is read from the kernel, so that no text that a profile prints can be taken for it.
	loginLine = `printf '\000atoll\000'; exec cat /proc/self/environ`
)

// Logins caches the environment of each user's login shell.
type Logins struct {
	settings *Settings
	table    *process.Table

	mu    sync.Mutex
	known map[string]login
}

type login struct {
	env   map[string]string
	stamp string
}

// NewLogins has nothing cached.
func NewLogins(settings *Settings, table *process.Table) *Logins {
	return &Logins{settings: settings, table: table, known: map[string]login{}}
}

// Shell is the program that runs lines.
func Shell() string {
	if _, err := os.Stat("/bin/bash"); err == nil {
		return "/bin/bash"
	}
	return "/bin/sh"
}

// HasShell tells whether there is a program that runs lines.
func HasShell() bool {
	info, err := os.Stat(Shell())
	return err == nil && info.Mode()&0o111 != 0
}

// Environment is that of a user's shell lines: the login shell's, the host's, the request's.
//
// A search path that the login shell has extended is not narrowed to the host's again.
func (l *Logins) Environment(account *user.Account, request map[string]string) []string {
	env := maps.Clone(l.Warm(account))
	path := env["PATH"]
	l.settings.overlay(env)
	if extends(path, env["PATH"]) {
		env["PATH"] = path
	}
	maps.Copy(env, request)
	return list(env)
}

func extends(path, host string) bool {
	return host != "" && strings.Contains(":"+path+":", ":"+host+":")
}

// Warm takes the environment of the user's login shell, unless it is known and nothing that it is made from has changed.
func (l *Logins) Warm(account *user.Account) map[string]string {
	stamp := l.stamp(account)
	l.mu.Lock()
	defer l.mu.Unlock()
	if found, ok := l.known[account.Name]; ok && found.stamp == stamp {
		return found.env
	}
	env := l.capture(account)
	l.known[account.Name] = login{env: env, stamp: stamp}
	return env
}

func (l *Logins) stamp(account *user.Account) string {
	text := []byte(strconv.Itoa(l.settings.changed()))
	for _, path := range []string{
		"/etc/profile", "/etc/profile.d", "/etc/environment",
		filepath.Join(account.Home, ".profile"), filepath.Join(account.Home, ".bash_profile"),
		filepath.Join(account.Home, ".bashrc"),
	} {
		var info syscall.Stat_t
		if syscall.Stat(path, &info) == nil {
			text = strconv.AppendInt(append(text, ' '), info.Mtim.Nano(), 36)
		} else {
			text = append(text, " -"...)
		}
	}
	return string(text)
}

func (l *Logins) capture(account *user.Account) map[string]string {
	env := base(account)
	l.settings.overlay(env)
	if !HasShell() {
		return env
	}
	shell := account.Shell
	if info, err := os.Stat(shell); err != nil || info.Mode()&0o111 == 0 || strings.HasSuffix(shell, "/nologin") || strings.HasSuffix(shell, "/false") {
		shell = Shell()
	}
	cwd := account.Home
	if process.CheckDirectory(account, cwd) != nil {
		cwd = "/"
	}
	_, follower, err := l.table.Start(process.Spec{
		Argv: []string{shell, "-l", "-c", loginLine}, Cwd: cwd, Env: append(list(env), withoutProfile+"=1"),
		Account: account, Timeout: loginTimeout, Hidden: true,
	})
	if err != nil {
		return env
	}
	if _, text, found := bytes.Cut(collect(follower), []byte(loginMark)); found {
		merge(env, text)
	}
	return env
}

func collect(follower *process.Follower) []byte {
	defer follower.Close()
	buffer := frames.Take()
	defer frames.Give(buffer)
	var text []byte
	for {
		kind, count, end := follower.Take(buffer.Payload())
		switch {
		case count > 0:
			if kind == frames.Stdout && len(text) < loginMost {
				text = append(text, buffer.Payload()[:count]...)
			}
		case end != nil:
			return text
		default:
			<-follower.Wake
		}
	}
}

func merge(env map[string]string, text []byte) {
	for line := range strings.SplitSeq(string(text), "\x00") {
		name, value, found := strings.Cut(line, "=")
		switch name {
		case "", "PWD", "OLDPWD", "SHLVL", "_", withoutProfile:
		default:
			if found {
				env[name] = value
			}
		}
	}
}
