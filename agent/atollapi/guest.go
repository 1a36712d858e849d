package atollapi

import (
	"fmt"
	"net/http"
	"syscall"
	"time"

	"atoll/agent/frames"
	"atoll/agent/hooks"
	"atoll/agent/service"
	"atoll/agent/settings"
	"atoll/agent/system"
	"atoll/agent/watch"
)

type initRequest struct {
	Generation *int64            `json:"generation"`
	Hostname   *string           `json:"hostname"`
	MachineID  *string           `json:"machine_id"`
	Env        map[string]string `json:"env"`
	User       *string           `json:"user"`
	Cwd        *string           `json:"cwd"`
	CAPem      *string           `json:"ca_pem"`
	Nameserver *string           `json:"nameserver"`
	Entropy    []byte            `json:"entropy"`
	Owners     []system.Owner    `json:"owners"`
	Memory     *int64            `json:"memory_bytes"`

	// Services are all services of the sandbox; nil leaves the present ones.
	Services []service.Definition `json:"services"`
}

func (a *API) init(w http.ResponseWriter, r *http.Request) error {
	var request initRequest
	if err := decode(w, r, &request); err != nil {
		return err
	}
	if err := a.System.Give(request.Owners); err != nil {
		return err
	}
	if request.User != nil && *request.User != "" {
		if _, err := a.Settings.Users.Lookup(*request.User); err != nil {
			return err
		}
	}
	// A host that lost the connection asks again.
	a.initMu.Lock()
	defer a.initMu.Unlock()
	if err := a.become(&request); err != nil {
		return err
	}
	answer(w, http.StatusOK, map[string]int64{"time_ns": time.Now().UnixNano()})
	return nil
}

// become applies the request to the guest: first the guest's own facts, then the generation, which programs wait for, and
// then, if it goes on from a checkpoint, the hooks.
func (a *API) become(request *initRequest) error {
	change := settings.Change{
		Env: request.Env, User: request.User, Cwd: request.Cwd, Generation: request.Generation,
	}
	if request.CAPem != nil {
		env, err := a.System.TrustCA(*request.CAPem)
		if err != nil {
			return err
		}
		change.CAEnv = env
	}
	copied := request.MachineID != nil && a.System.MachineID() != *request.MachineID
	err := a.System.Apply(system.Identity{
		Hostname: request.Hostname, MachineID: request.MachineID, Nameserver: request.Nameserver, Entropy: request.Entropy,
	})
	if err != nil {
		return err
	}
	if copied {
		a.Hooks.HostKeys()
	}
	earlier := a.Settings.Generation()
	if request.Cwd != nil && earlier == 0 {
		a.System.Provide(*request.Cwd)
	}
	if request.Env != nil && earlier != 0 {
		if err := a.System.SetEnvironment(request.Env); err != nil {
			return err
		}
	}
	if request.Generation != nil {
		if earlier != 0 && *request.Generation != earlier {
			// Before programs know that it is awake: they may leave another. A copy does not inherit it.
			a.System.ForgetWakeAt(time.Now(), copied)
		}
		if err := a.System.SetGeneration(*request.Generation); err != nil {
			return err
		}
	}
	if request.Memory != nil && a.Memory != nil {
		a.Memory.SetLimit(*request.Memory)
	}
	a.Settings.Apply(change)
	if now := a.Settings.Generation(); earlier != 0 && now != earlier {
		identity := "kept"
		if copied {
			identity = "new"
		}
		a.Hooks.AfterRestore(now, identity, hooks.Bound)
	}
	// Do this last, so that services find the guest in its final state.
	if request.Services != nil {
		return a.services.Define(request.Services)
	}
	return nil
}

func (a *API) warm(w http.ResponseWriter, r *http.Request) error {
	var request struct {
		User string `json:"user"`
	}
	if err := decode(w, r, &request); err != nil {
		return err
	}
	account, err := a.Settings.Account(request.User)
	if err != nil {
		return err
	}
	a.Logins.Warm(account)
	return done(w)
}

func (a *API) flush(w http.ResponseWriter, _ *http.Request) error {
	syscall.Sync()
	return done(w)
}

// freeMemory kills the biggest program for a host that runs short of memory.
func (a *API) freeMemory(w http.ResponseWriter, _ *http.Request) error {
	name, held, killed := a.Memory.KillForHost()
	answer(w, http.StatusOK, map[string]any{"killed": killed, "name": name, "held_bytes": held})
	return nil
}

// beforeSuspend says how many hooks there are, so that the host knows how long to wait; it asks again for them to run.
func (a *API) beforeSuspend(w http.ResponseWriter, r *http.Request) error {
	count := a.Hooks.SuspendHooks()
	if run := r.URL.Query().Get("hooks"); run == "true" {
		a.Hooks.BeforeSuspend(hooks.Bound)
	} else if count > 0 {
		answer(w, http.StatusOK, map[string]any{"hooks": count, "wake_at": 0})
		return nil
	}
	answer(w, http.StatusOK, map[string]any{"hooks": count, "wake_at": a.wakeAt()})
	return nil
}

// wakeAt is when a program inside wants the sandbox to wake, in Unix seconds, or 0. What is no time is told in the log.
func (a *API) wakeAt() float64 {
	at, err := a.System.WakeAt(time.Now())
	if err != nil && a.Console != nil {
		fmt.Fprintf(a.Console, "%s wake-at: %v\n", time.Now().UTC().Format(time.RFC3339), err)
	}
	return at
}

func (a *API) stats(w http.ResponseWriter, _ *http.Request) error {
	count, memory := system.Usage()
	wakeAt, _ := a.System.WakeAt(time.Now())
	answer(w, http.StatusOK, map[string]any{
		"processes": count, "memory_bytes": memory, "generation": a.Settings.Generation(),
		"waiting": a.waiting.Load(), "keep_awake_s": a.System.KeepAwake(time.Now()),
		"wake_at": wakeAt,
	})
	return nil
}

func (a *API) watch(w http.ResponseWriter, r *http.Request) error {
	work, path, err := a.queryWork(r)
	if err != nil {
		return err
	}
	recursive := r.URL.Query().Get("recursive")
	watcher, err := watch.Start(work.Account, path, recursive == "1" || recursive == "true")
	if err != nil {
		return err
	}
	defer watcher.Close()
	out := frames.NewWriter(w)
	err = out.SendJSON(frames.Start, struct{}{})
	alive := time.NewTicker(aliveEvery)
	defer alive.Stop()
	for err == nil {
		out.Flush()
		select {
		case event, open := <-watcher.Events:
			if !open {
				return nil
			}
			err = out.SendJSON(frames.Watch, event)
			alive.Reset(aliveEvery)
		case <-alive.C:
			err = out.SendAlive()
		case <-r.Context().Done():
			return nil
		}
	}
	return nil
}
