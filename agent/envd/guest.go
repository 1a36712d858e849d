package envd

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"syscall"
	"time"

	"atoll/agent/settings"
)

type initRequest struct {
	EnvVars        map[string]string `json:"envVars"`
	AccessToken    *string           `json:"accessToken"`
	Timestamp      *time.Time        `json:"timestamp"`
	DefaultUser    *string           `json:"defaultUser"`
	DefaultWorkdir *string           `json:"defaultWorkdir"`
	CABundle       *string           `json:"caBundle"`
}

// init takes what the platform tells the guest. Once there is a token, only who has it may set anything.
func (a *API) init(w http.ResponseWriter, r *http.Request) {
	var request initRequest
	err := json.NewDecoder(http.MaxBytesReader(w, r.Body, messageMost)).Decode(&request)
	if err != nil && !errors.Is(err, io.EOF) {
		answerHTTP(w, http.StatusBadRequest, "the request's body: "+err.Error())
		return
	}
	if token := a.Settings.Token(); token != "" && !same(r.Header.Get("X-Access-Token"), token) &&
		(request.AccessToken == nil || !same(*request.AccessToken, token)) {
		answerHTTP(w, http.StatusUnauthorized, "access token does not match")
		return
	}
	w.Header().Set("X-Envd-Version", Version)
	if request.Timestamp != nil && !a.Settings.Newer(*request.Timestamp) {
		w.WriteHeader(http.StatusNoContent)
		return
	}
	change := settings.Change{
		Env: request.EnvVars, Token: request.AccessToken, User: request.DefaultUser, Cwd: request.DefaultWorkdir,
	}
	if request.CABundle != nil {
		if change.CAEnv, err = a.System.TrustCA(*request.CABundle); err != nil {
			answerFault(w, err)
			return
		}
	}
	a.Settings.Apply(change)
	w.WriteHeader(http.StatusNoContent)
}

const mib = 1 << 20

func (a *API) metrics(w http.ResponseWriter, _ *http.Request) {
	now := a.meter.read()
	var disk syscall.Statfs_t
	// Without an answer the disk counts as empty.
	_ = syscall.Statfs("/", &disk)
	block := uint64(disk.Bsize)
	answer(w, http.StatusOK, map[string]any{
		"ts": time.Now().Unix(), "cpu_count": now.cpus, "cpu_used_pct": now.cpuPercent,
		"mem_total": now.memoryTotal, "mem_used": now.memoryUsed, "mem_cache": now.memoryCache,
		"mem_total_mib": now.memoryTotal / mib, "mem_used_mib": now.memoryUsed / mib,
		"disk_used": (disk.Blocks - disk.Bfree) * block, "disk_total": disk.Blocks * block,
	})
}
