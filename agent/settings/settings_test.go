package settings

import (
	"os"
	"path/filepath"
	"testing"

	"atoll/agent/user"
)

func database(t *testing.T) *user.Database {
	t.Helper()
	root := t.TempDir()
	if err := os.Mkdir(filepath.Join(root, "etc"), 0o755); err != nil {
		t.Fatal(err)
	}
	text := "root:x:0:0::/root:/bin/sh\nuser:x:1000:1000::/home/user:/bin/sh\n"
	if err := os.WriteFile(filepath.Join(root, "etc/passwd"), []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	return &user.Database{Root: root}
}

func TestTheDefaultUsersHomeIsNoOtherUsersDirectory(t *testing.T) {
	for _, row := range []struct{ cwd, name, wanted string }{
		{"/home/user", "user", "/home/user"},
		{"/home/user", "root", "/root"},
		{"/srv", "root", "/srv"},
		{"/srv", "user", "/srv"},
		{"", "root", "/root"},
	} {
		known := New(database(t))
		name := "user"
		known.Apply(Change{User: &name, Cwd: &row.cwd})
		account, err := known.Account(row.name)
		if err != nil {
			t.Fatal(err)
		}
		if got := known.Cwd(account); got != row.wanted {
			t.Errorf("%+v: %s", row, got)
		}
	}
}

func TestOnlyAPathThatHoldsTheHostsExtendsIt(t *testing.T) {
	for _, row := range []struct {
		path, host string
		wanted     bool
	}{
		{"/home/user/.cargo/bin:/usr/bin:/bin", "/usr/bin:/bin", true},
		{"/usr/bin:/bin:/opt/bin", "/usr/bin:/bin", true},
		{"/usr/bin:/bin", "/opt/bin:/usr/bin:/bin", false},
		{"/usr/bin:/bins", "/usr/bin:/bin", false},
		{"/usr/bin", "", false},
	} {
		if got := extends(row.path, row.host); got != row.wanted {
			t.Errorf("%+v: %t", row, got)
		}
	}
}
