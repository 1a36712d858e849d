package restore

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// HooksDirectory holds programs that are run, in the order of their names, whenever the guest goes on from a checkpoint.
const HooksDirectory = "/etc/atoll/on-restore.d"

// HooksBound is how long all hooks together may take: the host waits for them before it hands the sandbox out.
const HooksBound = 10 * time.Second

// Hooks runs them one after the other. One that fails is told of in the log and does not stop the next one;
// once the bound has passed, the one that runs is killed and those after it are left out.
func (r *Restore) Hooks(generation int64, identity string, bound time.Duration) {
	deadline := time.Now().Add(bound)
	env := map[string]string{"ATOLL_GENERATION": strconv.FormatInt(generation, 10), "ATOLL_IDENTITY": identity}
	for _, path := range r.hooks() {
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
func (r *Restore) hooks() []string {
	entries, err := os.ReadDir(r.path(HooksDirectory))
	if err != nil {
		return nil
	}
	var paths []string
	for _, entry := range entries {
		path := filepath.Join(r.path(HooksDirectory), entry.Name())
		info, err := os.Stat(path)
		if err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0 && !strings.HasPrefix(entry.Name(), ".") {
			paths = append(paths, path)
		}
	}
	return paths
}
