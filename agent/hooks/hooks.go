package hooks

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// Programs that are run in the order of their names: whenever the guest goes on from a checkpoint, and before it is
// frozen for a suspend.
const (
	AfterRestoreDirectory  = "/etc/atoll/on-restore.d"
	BeforeSuspendDirectory = "/etc/atoll/before-suspend.d"
)

// Bound is how long all hooks together may take: the host waits for them.
const Bound = 10 * time.Second

// AfterRestore runs the hooks of a guest that goes on from a checkpoint.
func (r *Runner) AfterRestore(generation int64, identity string, bound time.Duration) {
	env := map[string]string{"ATOLL_GENERATION": strconv.FormatInt(generation, 10), "ATOLL_IDENTITY": identity}
	r.run(AfterRestoreDirectory, env, bound)
}

// SuspendHooks is how many hooks there are to run before a suspend.
func (r *Runner) SuspendHooks() int { return len(r.hooks(BeforeSuspendDirectory)) }

// BeforeSuspend runs the hooks of a guest that is to be frozen.
func (r *Runner) BeforeSuspend(bound time.Duration) { r.run(BeforeSuspendDirectory, nil, bound) }

// run runs them one after the other. A hook that fails gets a line in the log and does not stop the next one. Once the
// bound has passed, the running hook is killed and the later ones are left out.
func (r *Runner) run(directory string, env map[string]string, bound time.Duration) {
	deadline := time.Now().Add(bound)
	for _, path := range r.hooks(directory) {
		name := "hook " + filepath.Base(path)
		left := time.Until(deadline)
		if left <= 0 {
			r.log(name, "skipped: there was no time left for it")
			continue
		}
		follower, err := r.start([]string{path}, env, left)
		if err != nil {
			r.log(name, err.Error())
			continue
		}
		text, _ := output(follower)
		r.tell(name, text)
	}
}

// hooks are the executable files of the directory by name, without hidden ones.
func (r *Runner) hooks(directory string) []string {
	if info, err := os.Stat(r.path(directory)); err != nil || !info.IsDir() {
		return nil // opening a pipe would wait
	}
	entries, err := os.ReadDir(r.path(directory))
	if err != nil {
		return nil
	}
	var paths []string
	for _, entry := range entries {
		path := filepath.Join(r.path(directory), entry.Name())
		info, err := os.Stat(path)
		if err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0 && !strings.HasPrefix(entry.Name(), ".") {
			paths = append(paths, path)
		}
	}
	return paths
}
