package envd

import (
	"maps"
	"net/http"
	"testing"

	"atoll/agent/process"
)

func TestTheErrorOfACommandTellsOfAProgramThatWasKilledForItsMemory(t *testing.T) {
	kill := &process.MemoryKill{PID: 7, Name: "hog", HeldBytes: 200 << 20, LimitBytes: 300 << 20}
	what := ": program 7 (hog) was killed at the memory limit of 300 MiB: it held 200 MiB"
	for _, each := range []struct {
		end    process.End
		wanted string
	}{
		{process.End{ExitCode: 137, Signal: 9, MemoryKill: kill}, "signal: killed" + what},
		{process.End{ExitCode: 137, MemoryKill: kill}, "exit status 137" + what},
		{process.End{MemoryKill: kill}, ""},
		{process.End{ExitCode: 1}, "exit status 1"},
	} {
		if got := endOf(&each.end).Error; got != each.wanted {
			t.Errorf("%q", got)
		}
	}
}

func TestAProgramIsToldItsSandboxUnlessTheRequestSaysOtherwise(t *testing.T) {
	plain, named := &http.Request{Header: http.Header{}}, &http.Request{Header: http.Header{}}
	named.Header.Set("E2b-Sandbox-Id", "first")
	named.Header.Set("E2b-Template-Id", "base")
	asked := map[string]string{"A": "b", "E2B_TEMPLATE_ID": "mine"}
	if got := told(plain, asked); !maps.Equal(got, asked) {
		t.Error(got)
	}
	wanted := map[string]string{"A": "b", "E2B_SANDBOX": "true", "E2B_SANDBOX_ID": "first", "E2B_TEMPLATE_ID": "mine"}
	if got := told(named, asked); !maps.Equal(got, wanted) {
		t.Error(got)
	}
	wanted = map[string]string{"E2B_SANDBOX": "true", "E2B_SANDBOX_ID": "first", "E2B_TEMPLATE_ID": "base"}
	if got := told(named, nil); !maps.Equal(got, wanted) {
		t.Error(got)
	}
}
