package settings

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

func loginPath(t *testing.T, file, profile string) string {
	t.Helper()
	command := exec.Command("/bin/sh", "-c", `PATH=$1; . "$2"; echo "$PATH"`, "sh", profile, file)
	text, err := command.Output()
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSuffix(string(text), "\n")
}

func TestALoginShellKeepsTheHostsSearchPathAndWhatAProfileAddsToIt(t *testing.T) {
	users := database(t)
	file := filepath.Join(users.Root, profileFile)
	known := New(users)
	host := "/opt/it's $HOME/bin:/usr/bin:/bin"
	known.Apply(Change{Env: map[string]string{"PATH": host}})
	if _, err := os.Stat(file); err == nil {
		t.Fatal("it was written where no shell reads it")
	}
	if err := os.Mkdir(filepath.Dir(file), 0o755); err != nil {
		t.Fatal(err)
	}
	known.Apply(Change{Env: map[string]string{"PATH": host}})
	for profile, wanted := range map[string]string{
		"/usr/bin:/bin": host, "/root/bin:" + host: "/root/bin:" + host, host + "/more": host,
	} {
		if got := loginPath(t, file, profile); got != wanted {
			t.Errorf("%s: %s", profile, got)
		}
	}
	t.Setenv(withoutProfile, "1")
	if got := loginPath(t, file, "/usr/bin:/bin"); got != "/usr/bin:/bin" {
		t.Error(got)
	}
	known.Apply(Change{Env: map[string]string{"PATH": "/usr/bin:/bin"}})
	if left, err := os.ReadDir(filepath.Dir(file)); err != nil || len(left) != 0 {
		t.Fatal(left, err)
	}
}
