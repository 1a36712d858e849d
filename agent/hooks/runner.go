// Package hooks runs the hooks of a guest's owner before a suspend and after a restore, and gives a copy keys of its own.
package hooks

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"atoll/agent/frames"
	"atoll/agent/process"
	"atoll/agent/settings"
)

const (
	outputMost = 16 << 10
	lineMost   = 500
)

// Runner acts in the guest below Root, with the agent's own rights.
type Runner struct {
	Root     string
	Table    *process.Table
	Settings *settings.Settings
	Console  io.Writer // the sandbox's log; nil tells nobody
}

func (r *Runner) path(name string) string { return filepath.Join(r.Root, name) }

// start starts a program of the guest whose process group is killed after the timeout. The follower is to be closed.
func (r *Runner) start(argv []string, env map[string]string, timeout time.Duration) (*process.Follower, error) {
	account, err := r.Settings.Users.Lookup(strconv.Itoa(os.Geteuid()))
	if err != nil {
		return nil, err
	}
	_, follower, err := r.Table.Start(process.Spec{
		Argv: argv, Cwd: "/", Env: r.Settings.Environment(account, env), Account: account, Timeout: timeout,
	})
	return follower, err
}

// tell writes what a program has printed into the log, each line after the name.
func (r *Runner) tell(name string, text []byte) {
	for line := range bytes.Lines(text) {
		line = bytes.TrimRight(line, "\r\n")
		r.log(name, string(line[:min(len(line), lineMost)]))
	}
}

func (r *Runner) log(name, line string) {
	if r.Console != nil {
		// A log that cannot be written stops nothing.
		_, _ = io.WriteString(r.Console, time.Now().UTC().Format(time.RFC3339)+" "+name+": "+line+"\n")
	}
}

// output waits for a program's end and returns the beginning of what it printed.
func output(follower *process.Follower) (text []byte, end process.End) {
	defer follower.Close()
	buffer := frames.Take()
	defer frames.Give(buffer)
	for {
		_, count, ended := follower.Take(buffer.Payload())
		switch {
		case count > 0:
			text = append(text, buffer.Payload()[:min(count, outputMost-len(text))]...)
		case ended != nil:
			return text, *ended
		default:
			<-follower.Wake
		}
	}
}
