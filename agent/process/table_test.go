package process

import (
	"fmt"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"atoll/agent/fault"
	"atoll/agent/frames"
	"atoll/agent/pty"
	"atoll/agent/user"
)

var table = sync.OnceValue(NewTable)

func shell(line string) Spec {
	return Spec{
		Argv: []string{"sh", "-c", line}, Cwd: "/", Env: []string{"PATH=/usr/bin:/bin"},
		Account: &user.Account{
			Name: "me", UID: uint32(os.Geteuid()), GID: uint32(os.Getegid()), Home: "/", Shell: "/bin/sh",
		},
	}
}

func start(t *testing.T, spec Spec) (*Process, *Follower) {
	t.Helper()
	p, f, err := table().Start(spec)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = syscall.Kill(-p.PID, syscall.SIGKILL) })
	return p, f
}

func started(t *testing.T, spec Spec) *Follower {
	t.Helper()
	_, f := start(t, spec)
	return f
}

// result reads everything; each kind's text is joined.
func result(t *testing.T, f *Follower) (texts map[byte]string, end End) {
	t.Helper()
	defer f.Close()
	texts = map[byte]string{}
	buffer := make([]byte, frames.MaxPayload)
	limit := time.After(60 * time.Second)
	for {
		kind, count, end := f.Take(buffer)
		texts[kind] += string(buffer[:count])
		if count > 0 {
			continue
		}
		if end != nil {
			return texts, *end
		}
		select {
		case <-f.Wake:
		case <-limit:
			t.Fatalf("no end; so far %q", texts)
		}
	}
}

func TestAProcessGivesItsOutputAndItsCode(t *testing.T) {
	texts, end := result(t, started(t, shell("echo out; echo err >&2; exit 7")))
	if texts[frames.Stdout] != "out\n" || texts[frames.Stderr] != "err\n" || end != (End{ExitCode: 7}) {
		t.Fatalf("%q %+v", texts, end)
	}
}

func TestManyShortProcessesAllKeepTheirCodes(t *testing.T) {
	var all sync.WaitGroup
	for worker := range 8 {
		all.Go(func() {
			for round := range 25 {
				code := (worker*25 + round) % 200
				_, f, err := table().Start(shell(fmt.Sprintf("echo %d; exit %d", code, code)))
				if err != nil {
					t.Error(err)
					return
				}
				texts, end := result(t, f)
				if end.ExitCode != code || texts[frames.Stdout] != fmt.Sprintln(code) {
					t.Errorf("%d: %+v %q", code, end, texts)
				}
			}
		})
	}
	all.Wait()
}

func TestASignalIsTheGroupsAndShowsInTheCode(t *testing.T) {
	p, f := start(t, shell("echo ready; sleep 600 & wait"))
	for text := ""; text == ""; {
		if text, _ = drain(f); text == "" {
			<-f.Wake
		}
	}
	f.Close()
	if err := p.Signal(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if _, end := result(t, p.Log.Follow(true)); end.ExitCode != 137 || end.Signal != 9 || end.TimedOut {
		t.Fatalf("%+v", end)
	}
	if err := p.Signal(syscall.SIGKILL); fault.Of(err).Code != fault.ProcessNotFound {
		t.Fatal(err)
	}
	if err := p.Write(strings.NewReader("x")); fault.Of(err).Code != fault.ProcessNotFound {
		t.Fatal(err)
	}
}

func TestTheTimeoutKillsTheWholeGroup(t *testing.T) {
	spec := shell("sleep 600 & echo $!; wait")
	spec.Timeout = 300 * time.Millisecond
	texts, end := result(t, started(t, spec))
	if !end.TimedOut || end.Signal != 9 {
		t.Fatalf("%+v", end)
	}
	var child int
	// A shell that was too slow to start its child has none to leave behind.
	if count, _ := fmt.Sscan(texts[frames.Stdout], &child); count == 1 {
		gone(t, child)
	}
}

// gone waits until a process has ended; it may stay as the zombie of another parent.
func gone(t *testing.T, pid int) {
	t.Helper()
	for range 6000 {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if err != nil || strings.Contains(string(text), ") Z ") {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Fatalf("process %d is still there", pid)
}

func TestTheEndComesThoughAChildHoldsTheOutput(t *testing.T) {
	marker := t.TempDir() + "/go"
	f := started(t, shell("(until [ -e "+marker+" ]; do sleep 0.05; done; yes | head -c 300000; touch "+marker+".done) & echo first"))
	texts, end := result(t, f)
	if texts[frames.Stdout] != "first\n" || end.ExitCode != 0 {
		t.Fatalf("%q %+v", texts, end)
	}
	if err := os.WriteFile(marker, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for range 6000 {
		if _, err := os.Stat(marker + ".done"); err == nil {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Fatal("the child could not write on after its parent's end")
}

func TestInputReachesTheProcessUntilItIsClosed(t *testing.T) {
	spec := shell("cat")
	spec.Stdin = true
	p, f := start(t, spec)
	big := strings.Repeat("x", 300_000)
	if err := p.Write(strings.NewReader(big)); err != nil {
		t.Fatal(err)
	}
	if err := p.CloseInput(); err != nil {
		t.Fatal(err)
	}
	if err := p.CloseInput(); err == nil {
		t.Fatal("closed twice")
	}
	if texts, _ := result(t, f); texts[frames.Stdout] != big {
		t.Fatalf("%d bytes came back", len(texts[frames.Stdout]))
	}
}

func TestWithoutInputAProcessReadsNothing(t *testing.T) {
	p, f := start(t, shell("wc -c"))
	if err := p.Write(strings.NewReader("x")); err == nil || fault.Of(err).Code == fault.Internal {
		t.Fatal(err)
	}
	if texts, _ := result(t, f); strings.TrimSpace(texts[frames.Stdout]) != "0" {
		t.Fatal(texts)
	}
}

func TestATerminalHasItsSizeAndCanBeResized(t *testing.T) {
	spec := shell("stty size; read line; stty size; echo got $line")
	spec.Terminal = &pty.Size{Cols: 97, Rows: 31}
	p, f := start(t, spec)
	if err := p.Resize(pty.Size{Cols: 111, Rows: 22}); err != nil {
		t.Fatal(err)
	}
	if err := p.Write(strings.NewReader("tide\n")); err != nil {
		t.Fatal(err)
	}
	texts, _ := result(t, f)
	if text := texts[frames.Terminal]; !strings.Contains(text, "22 111") || !strings.Contains(text, "got tide") {
		t.Fatalf("%q", text)
	}
}

func TestANewSizeIsSetAgainWhereAProgramPutsTheOldOneBack(t *testing.T) {
	old, wanted, other := pty.Size{Cols: 97, Rows: 31}, pty.Size{Cols: 111, Rows: 22}, pty.Size{Cols: 80, Rows: 22}
	spec := shell("read line")
	spec.Terminal = &old
	p, f := start(t, spec)
	defer f.Close()
	terminal, err := p.openInput()
	if err != nil {
		t.Fatal(err)
	}
	settled := func(byProgram pty.Size) pty.Size {
		for _, size := range []pty.Size{old, wanted} {
			if err := p.Resize(size); err != nil {
				t.Fatal(err)
			}
		}
		if err := pty.Resize(terminal, byProgram); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * looksAfter[len(looksAfter)-1])
		size, err := pty.SizeOf(terminal)
		if err != nil {
			t.Fatal(err)
		}
		return size
	}
	if size := settled(other); size != other {
		t.Fatalf("what a program has chosen became %v", size)
	}
	for range 5 { // this test may be late itself
		if settled(old) == wanted {
			return
		}
	}
	t.Fatal("the new size is lost")
}

func TestWhatCannotStartSaysWhy(t *testing.T) {
	plain := t.TempDir() + "/plain"
	if err := os.WriteFile(plain, []byte("no program"), 0o644); err != nil {
		t.Fatal(err)
	}
	for wanted, change := range map[fault.Code]func(*Spec){
		fault.ProgramMissing: func(s *Spec) { s.Argv = []string{"no-such-program"} },
		fault.CwdMissing:     func(s *Spec) { s.Cwd = "/no/such/place" },
		fault.Denied:         func(s *Spec) { s.Argv = []string{plain} },
		fault.Invalid:        func(s *Spec) { s.Argv = nil },
	} {
		spec := shell("true")
		change(&spec)
		if _, _, err := table().Start(spec); err == nil || fault.Of(err).Code != wanted {
			t.Errorf("%v, wanted %s", err, wanted)
		}
	}
}

func TestARunningProcessIsListedAndAnEndedOneIsStillFound(t *testing.T) {
	spec := shell("read line; exit 4")
	spec.Stdin, spec.Tag = true, "tagged"
	p, f := start(t, spec)
	listed := func() bool {
		for _, other := range table().List() {
			if other == p {
				return true
			}
		}
		return false
	}
	if !listed() {
		t.Error("not listed while it runs")
	}
	if err := p.CloseInput(); err != nil {
		t.Fatal(err)
	}
	f.Close()
	if _, end := result(t, p.Log.Follow(true)); end.ExitCode != 4 {
		t.Errorf("%+v", end)
	}
	if listed() {
		t.Error("listed after its end")
	}
	if found, err := table().Get(p.PID); err != nil || found != p {
		t.Error(err)
	}
	if found, err := table().GetTagged("tagged"); err != nil || found != p {
		t.Error(err)
	}
	if _, err := table().Get(1 << 30); fault.Of(err).Code != fault.ProcessNotFound {
		t.Error(err)
	}
}

func TestAllOutputOfAFastProgramIsThereForWhoStartedIt(t *testing.T) {
	f := started(t, shell("head -c 4000000 /dev/zero"))
	time.Sleep(50 * time.Millisecond) // as when the agent has much to do
	if texts, _ := result(t, f); len(texts[frames.Stdout]) != 4000000 || f.Missed {
		t.Fatal(len(texts[frames.Stdout]), f.Missed)
	}
}
