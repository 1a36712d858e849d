package hooks

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"atoll/agent/regular"
)

const (
	keysPattern = "/etc/ssh/ssh_host_*_key"
	keysBound   = 15 * time.Second
	sshdPID     = "/run/sshd.pid"
)

// HostKeys replaces each ssh host key that the guest has by a new one of the same kind, and has a running sshd take them.
// A key that cannot be replaced is removed: no two sandboxes may show the same.
func (r *Runner) HostKeys() {
	keys, err := filepath.Glob(r.path(keysPattern))
	if err != nil || len(keys) == 0 {
		return
	}
	var all sync.WaitGroup
	for _, key := range keys {
		all.Go(func() {
			if !r.replace(key) {
				r.log("ssh", filepath.Base(key)+" belonged to another sandbox and was removed")
				_, _ = os.Remove(key), os.Remove(key+".pub")
			}
		})
	}
	all.Wait()
	r.reload()
}

func (r *Runner) replace(key string) bool {
	kind := strings.TrimSuffix(strings.TrimPrefix(filepath.Base(key), "ssh_host_"), "_key")
	aside := key + ".atoll"
	_, _ = os.Remove(aside), os.Remove(aside+".pub")
	follower, err := r.start([]string{"ssh-keygen", "-q", "-t", kind, "-N", "", "-f", aside}, nil, keysBound)
	if err != nil {
		return false
	}
	if _, end := output(follower); end.ExitCode != 0 {
		_, _ = os.Remove(aside), os.Remove(aside+".pub")
		return false
	}
	// Rename the public one first: an end in between leaves no pair, but no key of another sandbox either.
	return os.Rename(aside+".pub", key+".pub") == nil && os.Rename(aside, key) == nil
}

// reload tells the sshd that wrote its id to read its keys again; it ends no session.
func (r *Runner) reload() {
	text, err := regular.Read(r.path(sshdPID))
	if err != nil {
		return
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil || pid <= 1 {
		return
	}
	name, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/comm")
	if err == nil && strings.TrimSpace(string(name)) == "sshd" {
		// It may have ended in this very moment.
		_ = syscall.Kill(pid, syscall.SIGHUP)
	}
}
