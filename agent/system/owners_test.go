package system

import (
	"encoding/json"
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

func TestFilesGetTheirOwnersAndKeepTheirMode(t *testing.T) {
	s := &System{Root: t.TempDir()}
	path := filepath.Join(s.Root, "tool")
	if err := os.WriteFile(path, nil, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Chmod(path, 0o2755); err != nil {
		t.Fatal(err)
	}
	uid, gid := os.Getuid(), os.Getgid()
	if uid == 0 {
		uid, gid = 1000, 42
	}
	list, err := json.Marshal([]any{[]any{"tool", uid, gid}, []any{"missing", 1, 1}})
	if err != nil {
		t.Fatal(err)
	}
	var owners []Owner
	if err := json.Unmarshal(list, &owners); err != nil {
		t.Fatal(err)
	}
	if err := s.Give(owners); err != nil {
		t.Fatal(err)
	}
	var found syscall.Stat_t
	if err := syscall.Lstat(path, &found); err != nil {
		t.Fatal(err)
	}
	if found.Uid != uint32(uid) || found.Gid != uint32(gid) || found.Mode&0o7777 != 0o2755 {
		t.Fatalf("%d:%d %o", found.Uid, found.Gid, found.Mode)
	}
}
