package user

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"atoll/agent/fault"
)

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

func database(t *testing.T) *Database {
	root := t.TempDir()
	write(t, filepath.Join(root, "etc/passwd"),
		"root:x:0:0:root:/root:/bin/bash\nbroken\nuser:x:1000:1000::/home/user:\n# user2:x:1:1::/:\nbad:x:one:1::/:/bin/sh\n")
	write(t, filepath.Join(root, "etc/group"), "root:x:0:\nuser:x:1000:\nsudo:x:27:other,user\ndocker:x:99:user\n")
	return &Database{Root: root}
}

func TestAnAccountHasItsHomeItsShellAndAllItsGroups(t *testing.T) {
	account, err := database(t).Lookup("user")
	if err != nil {
		t.Fatal(err)
	}
	if account.UID != 1000 || account.GID != 1000 || account.Home != "/home/user" || account.Shell != "/bin/sh" {
		t.Fatalf("got %+v", account)
	}
	if !slices.Equal(account.Groups, []uint32{1000, 27, 99}) {
		t.Fatalf("groups %v", account.Groups)
	}
}

func TestAnAccountIsFoundByItsNumberToo(t *testing.T) {
	account, err := database(t).Lookup("1000")
	if err != nil || account.Name != "user" {
		t.Fatalf("%+v, %v", account, err)
	}
}

func TestAnUnknownUserIsRefused(t *testing.T) {
	for _, name := range []string{"nobody-here", "", "# user2", "bad", "user:nowhere", "-1", "4294967295", "user:4294967295", "4294967296"} {
		if _, err := database(t).Lookup(name); err == nil || fault.Of(err).Code != fault.UserUnknown {
			t.Fatalf("%q: %v", name, err)
		}
	}
}

func TestANumberNeedsNoAccountAndAGroupMayFollow(t *testing.T) {
	for _, row := range []struct {
		name     string
		uid, gid uint32
	}{{"4242", 4242, 0}, {"4242:77", 4242, 77}, {"user:docker", 1000, 99}, {"1000:sudo", 1000, 27}} {
		account, err := database(t).Lookup(row.name)
		if err != nil {
			t.Fatal(err)
		}
		if account.UID != row.uid || account.GID != row.gid || !slices.Equal(account.Groups, []uint32{row.gid}) {
			t.Errorf("%s: %+v", row.name, account)
		}
	}
}

func TestAUserThatIsAddedLaterIsFound(t *testing.T) {
	d := database(t)
	if _, err := d.Lookup("late"); err == nil {
		t.Fatal("found too early")
	}
	write(t, filepath.Join(d.Root, "etc/passwd"), "late:x:5:5::/:/bin/sh\n")
	if _, err := d.Lookup("late"); err != nil {
		t.Fatal(err)
	}
	if _, err := d.Lookup("root"); err != nil {
		t.Fatal("there is always root:", err)
	}
}

func TestNamesOfIdsFallBackToTheirDigits(t *testing.T) {
	d := database(t)
	if d.OwnerName(1000) != "user" || d.OwnerName(7) != "7" || d.GroupName(27) != "sudo" || d.GroupName(8) != "8" {
		t.Fatal("wrong names")
	}
}

func TestWorkIsDoneWithTheRightsOfTheUser(t *testing.T) {
	stranger := &Account{Name: "stranger", UID: 65533, GID: 65533, Groups: []uint32{65533}}
	directory := t.TempDir()
	secret := filepath.Join(directory, "secret")
	write(t, secret, "x")
	if err := os.Chmod(secret, 0o600); err != nil {
		t.Fatal(err)
	}
	err := stranger.Act(func() error {
		_, err := os.ReadFile(secret)
		return err
	})
	if agentUID != 0 {
		if fault.Of(err).Code != fault.Denied {
			t.Fatal(err)
		}
		return
	}
	if !errors.Is(err, os.ErrPermission) {
		t.Fatalf("a stranger read the secret: %v", err)
	}
	for range 100 {
		if _, err := os.ReadFile(secret); err != nil {
			t.Fatal("the agent lost its own rights:", err)
		}
	}
}

func TestAPanicOfTheWorkIsAnError(t *testing.T) {
	if agentUID != 0 {
		t.Log("only root's work moves to a thread of its own")
		return
	}
	stranger := &Account{Name: "stranger", UID: 65533, GID: 65533}
	if err := stranger.Act(func() error { panic("oops") }); err == nil {
		t.Fatal("no error")
	}
}
