package process

import (
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

func TestTheEndOfAProcessTellsWhichOfItsProgramsWasKilledForItsMemory(t *testing.T) {
	p, f := start(t, shell("sleep 600 & echo $!; wait $!; exit $?"))
	child := 0
	for text := ""; text == ""; {
		if text, _ = drain(f); text == "" {
			<-f.Wake
		}
		_, _ = fmt.Sscanf(text, "o:%d", &child)
	}
	f.Close()
	if child <= 1 {
		t.Fatal("the shell did not say what it has started")
	}
	kill := MemoryKill{PID: child, Name: "sleep", HeldBytes: 200 << 20, UsedBytes: 290 << 20, LimitBytes: 300 << 20}
	table().NoteMemoryKill("/", kill)
	if err := syscall.Kill(child, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	_, end := result(t, p.Log.Follow(true))
	if end.ExitCode != 137 || end.MemoryKill == nil || *end.MemoryKill != kill {
		t.Fatalf("%+v", end)
	}
	wanted := fmt.Sprintf("program %d (sleep) was killed at the memory limit of 300 MiB: it held 200 MiB", child)
	if end.MemoryKill.String() != wanted {
		t.Fatal(end.MemoryKill.String())
	}
}

func TestAKillForTheHostNamesTheHostAndNoLimit(t *testing.T) {
	kill := MemoryKill{PID: 7, Name: "hog", HeldBytes: 200 << 20}
	wanted := "program 7 (hog) was killed because the host ran short of memory: it held 200 MiB"
	if kill.String() != wanted {
		t.Fatal(kill.String())
	}
}

func TestAMemoryKillThatFailedIsToldOfNobody(t *testing.T) {
	p, f := start(t, shell("read line; exit 3"))
	table().NoteMemoryKill("/", MemoryKill{PID: p.PID})()
	table().NoteMemoryKill("/", MemoryKill{PID: 1 << 30})
	if _, end := result(t, f); end.MemoryKill != nil {
		t.Fatalf("%+v", end)
	}
}

func TestTheKinOfAProcessIsReadWhateverItsNameIs(t *testing.T) {
	root := t.TempDir()
	path := filepath.Join(root, "proc", "7")
	if err := os.MkdirAll(path, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(path, "stat"), []byte("7 (a ) S 1 2) S 5 6 4 0 0"), 0o644); err != nil {
		t.Fatal(err)
	}
	if parent, session := kin(root, 7); parent != 5 || session != 4 {
		t.Errorf("%d %d", parent, session)
	}
	if parent, session := kin(root, 8); parent != 0 || session != 0 {
		t.Errorf("%d %d", parent, session)
	}
}
