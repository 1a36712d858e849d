package service

import (
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"atoll/agent/frames"
	"atoll/agent/process"
	"atoll/agent/user"
)

var table = sync.OnceValue(process.NewTable)

// lines starts shell lines as the agent's own user.
func lines(d *Definition, check bool) (*process.Process, *process.Follower, error) {
	return table().Start(process.Spec{
		Argv: []string{"/bin/sh", "-c", *d.Line}, Cwd: "/", Env: []string{"PATH=/usr/bin:/bin"},
		Account: &user.Account{Name: "me", UID: uint32(os.Geteuid()), GID: uint32(os.Getegid()), Home: "/"},
		Timeout: time.Duration(d.TimeoutMS) * time.Millisecond, Hidden: check, Passing: true,
	})
}

func defined(name, line, restart string) Definition {
	return Definition{Name: name, Line: &line, Restart: restart}
}

func services(t *testing.T, definitions ...Definition) *Services {
	t.Helper()
	s := &Services{Begin: lines}
	if err := s.Define(definitions); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Define(nil); err != nil {
			t.Error(err)
		}
	})
	return s
}

func (s *Services) one(t *testing.T, name string) *Service {
	t.Helper()
	one, err := s.Get(name)
	if err != nil {
		t.Fatal(err)
	}
	return one
}

// until waits for a status.
func until(t *testing.T, one *Service, isSo func(Status) bool) Status {
	t.Helper()
	limit := time.Now().Add(60 * time.Second)
	for {
		status := one.Status()
		if isSo(status) {
			return status
		}
		if time.Now().After(limit) {
			t.Fatalf("it stays %+v", status)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

func printed(one *Service) string {
	follower := one.Log.Follow(true)
	defer follower.Close()
	buffer := make([]byte, frames.MaxPayload)
	var text strings.Builder
	for {
		_, count, _ := follower.Take(buffer)
		if count == 0 {
			return text.String()
		}
		text.Write(buffer[:count])
	}
}

func running(status Status) bool { return status.State == Running }

func TestAServiceStartsAgainAfterItsEndAndKeepsTheOutputOfAllRuns(t *testing.T) {
	one := services(t, defined("a", "echo run; exit 3", Always)).one(t, "a")
	status := until(t, one, func(status Status) bool { return status.Restarts >= 2 && status.State != Running })
	if *status.ExitCode != 3 || status.Reason != "it ended with 3" {
		t.Fatalf("%+v", status)
	}
	if text := printed(one); !strings.HasPrefix(text, "run\nrun\n") {
		t.Fatalf("%q", text)
	}
}

func TestThePauseBeforeARestartGrows(t *testing.T) {
	one := services(t, defined("a", "exit 1", Always)).one(t, "a")
	began := time.Now()
	until(t, one, func(status Status) bool { return status.Runs >= 4 })
	if least := 7 * pauseFirst; time.Since(began) < least {
		t.Fatalf("four runs within %v", time.Since(began))
	}
}

func TestAServiceWithoutRestartEnds(t *testing.T) {
	s := services(t, defined("never", "exit 3", Never), defined("well", "exit 0", OnFailure), defined("ill", "exit 1", OnFailure))
	for _, name := range []string{"never", "well"} {
		status := until(t, s.one(t, name), func(status Status) bool { return status.State == Ended })
		if status.Restarts != 0 {
			t.Fatalf("%+v", status)
		}
	}
	until(t, s.one(t, "ill"), func(status Status) bool { return status.Restarts > 0 })
	s.one(t, "never").Start()
	if runs := s.one(t, "never").Status().Runs; runs != 2 {
		t.Fatalf("%d runs", runs)
	}
}

func TestAProgramThatIsMissingIsTriedAgain(t *testing.T) {
	s := &Services{Begin: func(d *Definition, check bool) (*process.Process, *process.Follower, error) {
		return table().Start(process.Spec{Argv: []string{"/nowhere"}, Cwd: "/", Account: &user.Account{UID: uint32(os.Geteuid()), GID: uint32(os.Getegid())}})
	}}
	if err := s.Put(defined("a", "x", Always)); err != nil {
		t.Fatal(err)
	}
	status := until(t, s.one(t, "a"), func(status Status) bool { return status.Runs > 1 })
	if !strings.Contains(status.Reason, "/nowhere") || *status.ExitCode != 127 {
		t.Fatalf("%+v", status)
	}
	s.Remove("a")
}

func TestStopStartAndRestart(t *testing.T) {
	one := services(t, defined("a", "exec sleep 1000", Always)).one(t, "a")
	first := until(t, one, running).PID
	one.Stop()
	if status := one.Status(); status.State != Stopped || status.PID != 0 {
		t.Fatalf("%+v", status)
	}
	one.Start()
	second := until(t, one, running).PID
	one.Restart()
	third := one.Status()
	if third.State != Running || third.PID == second || second == first {
		t.Fatalf("%d, %d, %+v", first, second, third)
	}
}

func TestAServiceThatWaitsForItsRestartCanBeStopped(t *testing.T) {
	one := services(t, defined("a", "exit 1", Always)).one(t, "a")
	until(t, one, func(status Status) bool { return status.State == Waiting && status.Runs > 0 })
	one.Stop()
	if status := one.Status(); status.State != Stopped {
		t.Fatalf("%+v", status)
	}
}

func TestWhatIsDefinedAsBeforeGoesOn(t *testing.T) {
	same, changed := defined("same", "exec sleep 1000", Always), defined("changed", "exec sleep 1000", Always)
	s := services(t, same, changed, defined("gone", "exec sleep 1000", Always))
	before, gone := until(t, s.one(t, "same"), running).PID, until(t, s.one(t, "gone"), running).PID
	again := defined("changed", "exec sleep 1001", Always)
	if err := s.Define([]Definition{same, again}); err != nil {
		t.Fatal(err)
	}
	if pid := s.one(t, "same").Status().PID; pid != before {
		t.Fatalf("%d is now %d", before, pid)
	}
	if _, err := s.Get("gone"); err == nil {
		t.Fatal("it is still there")
	}
	if process, err := table().Get(gone); err == nil {
		select {
		case <-process.Gone():
		default:
			t.Fatal("its program still runs")
		}
	}
	until(t, s.one(t, "changed"), running)
}

func TestAServiceWhoseChecksFailIsStartedAgain(t *testing.T) {
	flag := t.TempDir() + "/well"
	if err := os.WriteFile(flag, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	definition := defined("a", "exec sleep 1000", OnFailure)
	definition.Health = &Health{Line: "test -e " + flag, EveryMS: 100, TimeoutMS: 5000, GraceMS: 60000, Failures: 2}
	one := services(t, definition).one(t, "a")
	until(t, one, func(status Status) bool { return status.Healthy != nil && *status.Healthy })
	if err := os.Remove(flag); err != nil {
		t.Fatal(err)
	}
	until(t, one, func(status Status) bool { return status.Restarts > 0 })
	if err := os.WriteFile(flag, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	until(t, one, func(status Status) bool { return running(status) && status.Healthy != nil && *status.Healthy })
}

func TestChecksThatFailWhileItBeginsDoNotCount(t *testing.T) {
	definition := defined("a", "exec sleep 1000", Always)
	definition.Health = &Health{Port: 1, EveryMS: 100, TimeoutMS: 1000, GraceMS: 60000, Failures: 1}
	one := services(t, definition).one(t, "a")
	until(t, one, running)
	time.Sleep(5 * everyLeast)
	if status := one.Status(); status.Restarts != 0 || status.Healthy != nil {
		t.Fatalf("%+v", status)
	}
}

func TestWhatAServiceLeavesIsKilled(t *testing.T) {
	left := t.TempDir() + "/left"
	one := services(t, defined("a", "sleep 1000 & echo $! > "+left, Never)).one(t, "a")
	until(t, one, func(status Status) bool { return status.State == Ended })
	text, err := os.ReadFile(left)
	if err != nil {
		t.Fatal(err)
	}
	limit := time.Now().Add(60 * time.Second)
	for {
		state, err := os.ReadFile("/proc/" + strings.TrimSpace(string(text)) + "/stat")
		if err != nil || strings.Contains(string(state), ") Z ") {
			return
		}
		if time.Now().After(limit) {
			t.Fatal("it still runs")
		}
		time.Sleep(5 * time.Millisecond)
	}
}

func TestInvalidDefinitionsAreRefused(t *testing.T) {
	s := services(t)
	for _, definition := range []Definition{
		defined("", "true", Always), defined("A", "true", Always), defined("a", "true", "sometimes"),
		{Name: "a", Restart: Always},
	} {
		if err := s.Put(definition); err == nil {
			t.Errorf("%+v is taken", definition)
		}
	}
	if err := s.Define([]Definition{defined("a", "true", Never), defined("a", "true", Never)}); err == nil {
		t.Error("two of one name are taken")
	}
}
