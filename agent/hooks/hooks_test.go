package hooks

import (
	"bytes"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"atoll/agent/process"
	"atoll/agent/settings"
	"atoll/agent/user"
)

var table = sync.OnceValue(process.NewTable)

func guest(t *testing.T) (*Runner, *bytes.Buffer) {
	t.Helper()
	root, log := t.TempDir(), &bytes.Buffer{}
	own := strconv.Itoa(os.Geteuid())
	put(t, filepath.Join(root, "etc/passwd"), "me:x:"+own+":"+strconv.Itoa(os.Getegid())+"::/:/bin/sh\n", 0o644)
	known := settings.New(&user.Database{Root: root})
	return &Runner{Root: root, Table: table(), Settings: known, Console: log}, log
}

func put(t *testing.T, path, text string, mode os.FileMode) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), mode); err != nil {
		t.Fatal(err)
	}
}

func hook(t *testing.T, r *Runner, name, script string, mode os.FileMode) {
	t.Helper()
	put(t, filepath.Join(r.path(AfterRestoreDirectory), name), "#!/bin/sh\n"+script+"\n", mode)
}

func TestHooksRunInTheOrderOfTheirNamesAndAFailureStopsNone(t *testing.T) {
	r, log := guest(t)
	hook(t, r, "20-second", "echo second $ATOLL_GENERATION $ATOLL_IDENTITY", 0o755)
	hook(t, r, "10-first", "echo first; exit 3", 0o755)
	hook(t, r, "15-broken", "", 0o755)
	put(t, filepath.Join(r.path(AfterRestoreDirectory), "15-broken"), "#!/no/such/interpreter\n", 0o755)
	hook(t, r, "30-no-program", "echo never", 0o644)
	hook(t, r, ".hidden", "echo never", 0o755)
	r.AfterRestore(7, "new", time.Minute)
	lines := strings.Split(strings.TrimSpace(log.String()), "\n")
	if len(lines) != 3 || !strings.HasSuffix(lines[0], " hook 10-first: first") ||
		!strings.Contains(lines[1], " hook 15-broken: ") || !strings.HasSuffix(lines[2], " hook 20-second: second 7 new") {
		t.Fatal(log)
	}
}

func TestAHookThatHangsIsKilledAtTheBound(t *testing.T) {
	r, log := guest(t)
	hook(t, r, "1-hangs", "echo begun; sleep 1000 & wait", 0o755)
	hook(t, r, "2-late", "echo never", 0o755)
	r.AfterRestore(7, "kept", 2*time.Second)
	if text := log.String(); !strings.Contains(text, "hook 1-hangs: begun") || !strings.Contains(text, "hook 2-late: skipped") {
		t.Fatal(text)
	}
}

func TestAHookThatFloodsLeavesALittle(t *testing.T) {
	r, log := guest(t)
	hook(t, r, "floods", "head -c 300000 /dev/zero | tr '\\0' x", 0o755)
	r.AfterRestore(7, "kept", time.Minute)
	if log.Len() < lineMost || log.Len() > 2*outputMost {
		t.Fatal(log.Len())
	}
}

func TestHostKeysAreReplacedByNewOnesOfTheirKind(t *testing.T) {
	r, _ := guest(t)
	// A stand-in: the real one runs in tests/e2e.
	put(t, r.path("/bin/ssh-keygen"), "#!/bin/sh\necho \"private $3\" >$7; chmod 600 $7; echo \"public $3\" >$7.pub\n", 0o755)
	r.Settings.Apply(settings.Change{Env: map[string]string{"PATH": r.path("/bin") + ":" + os.Getenv("PATH")}})
	key := r.path("/etc/ssh/ssh_host_ed25519_key")
	put(t, key, "old", 0o600)
	put(t, key+".pub", "old", 0o644)
	r.HostKeys()
	public, err := os.ReadFile(key + ".pub")
	if err != nil || string(public) != "public ed25519\n" {
		t.Fatal(err, string(public))
	}
	if info, err := os.Stat(key); err != nil || info.Mode().Perm() != 0o600 {
		t.Fatal(err, info)
	}
}

func TestAHostKeyThatCannotBeReplacedIsRemoved(t *testing.T) {
	r, log := guest(t)
	key := r.path("/etc/ssh/ssh_host_nokind_key")
	put(t, key, "old", 0o600)
	put(t, key+".pub", "old", 0o644)
	r.HostKeys()
	left, err := os.ReadDir(filepath.Dir(key))
	if err != nil || len(left) != 0 || !strings.Contains(log.String(), "ssh_host_nokind_key") {
		t.Fatal(err, left, log)
	}
}

func TestHooksBeforeASuspendAreOthers(t *testing.T) {
	r, log := guest(t)
	hook(t, r, "1-after", "echo never", 0o755)
	if r.SuspendHooks() != 0 {
		t.Fatal(r.SuspendHooks())
	}
	put(t, filepath.Join(r.path(BeforeSuspendDirectory), "1-before"), "#!/bin/sh\necho before\n", 0o755)
	put(t, filepath.Join(r.path(BeforeSuspendDirectory), "2-no-program"), "#!/bin/sh\necho never\n", 0o644)
	r.BeforeSuspend(time.Minute)
	if text := strings.TrimSpace(log.String()); r.SuspendHooks() != 1 || !strings.HasSuffix(text, "hook 1-before: before") {
		t.Fatal(r.SuspendHooks(), text)
	}
}
