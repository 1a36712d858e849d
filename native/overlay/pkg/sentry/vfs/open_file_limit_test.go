package vfs

import (
	"testing"

	"gvisor.dev/gvisor/pkg/errors/linuxerr"
	"gvisor.dev/gvisor/pkg/sentry/kernel/auth"
)

func user(kuid auth.KUID) *auth.Credentials { return &auth.Credentials{EffectiveKUID: kuid} }

// fill opens files until one is refused, and returns how many it has opened.
func fill(t *testing.T, creds *auth.Credentials, most int) int {
	t.Helper()
	for count := range most {
		if err := countOpenFile(creds); err != nil {
			if err != linuxerr.ENFILE {
				t.Errorf("a file is refused with %v", err)
			}
			return count
		}
	}
	return most
}

func TestOpenFilesEndAtTheirLimitAndRootHasSomeMore(t *testing.T) {
	defer func() {
		LimitOpenFiles(0)
		openFiles.Store(0)
	}()
	if fill(t, user(1000), 1000) != 1000 {
		t.Error("there is a limit from the start")
	}
	openFiles.Store(0)
	LimitOpenFiles(100)
	if OpenFileLimit() != 100 {
		t.Errorf("OpenFileLimit() = %d", OpenFileLimit())
	}
	if count := fill(t, user(1000), 1000); count != 100 {
		t.Errorf("a user has %d files", count)
	}
	if count := fill(t, user(auth.RootKUID), 1000); count != reservedOpenFiles {
		t.Errorf("root has %d files more", count)
	}
	if openFiles.Load() != 100+reservedOpenFiles {
		t.Errorf("%d files are counted", openFiles.Load())
	}
}

func TestALowerLimitLeavesRootSomeFiles(t *testing.T) {
	defer func() {
		LimitOpenFiles(0)
		openFiles.Store(0)
	}()
	fill(t, user(1000), 1000)
	LimitOpenFiles(10)
	if count := fill(t, user(auth.RootKUID), 1000); count != leastOpenFiles {
		t.Errorf("root has %d files more", count)
	}
	if count := fill(t, user(1000), 1000); count != 0 {
		t.Errorf("a user has %d files more", count)
	}
	openFiles.Store(0)
	LimitOpenFiles(10)
	for range 1000 {
		countLoadedFile() // What a checkpoint has open is never refused.
	}
	if count := fill(t, user(auth.RootKUID), 1000); count != leastOpenFiles {
		t.Errorf("after a restore root has %d files more", count)
	}
}
