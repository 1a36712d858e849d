package confine

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

func TestNothingIsLeftToTry(t *testing.T) {
	path := filepath.Join(t.TempDir(), "attempt")
	build := exec.Command("go", "build", "-o", path, "./testdata/attempt")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if said, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, said)
	}
	before, err := exec.Command(path).CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, before)
	}
	for _, each := range []string{"open", "write", "exec", "listen", "netlink", "unix", "signal", "executable", "dumpable"} {
		if !strings.Contains(string(before), each+" true") {
			t.Errorf("with all rights: %s fails: %s", each, before)
		}
	}
	for _, each := range []string{"connect", "accept", "datagram", "pair", "memfd", "queue"} {
		if !strings.Contains(string(before), "network: "+each+" true") {
			t.Errorf("with all rights: %s fails: %s", each, before)
		}
	}
	after, err := exec.Command(path, "confined").CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, after)
	}
	if strings.Contains(string(after), "true") || !strings.HasSuffix(string(after), "alive\n") {
		t.Errorf("without rights: %s", after)
	}
	after, err = exec.Command(path, "accept").CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, after)
	}
	if strings.Count(string(after), "true") != 1 || !strings.Contains(string(after), "network: accept true\n") {
		t.Errorf("with what accepts: %s", after)
	}
	after, err = exec.Command(path, "network").CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, after)
	}
	for line := range strings.Lines(string(after)) {
		if is := strings.HasSuffix(line, "true\n"); is != strings.HasPrefix(line, "network: ") && line != "alive\n" {
			t.Errorf("with a network: %s", line)
		}
	}
	if !strings.HasSuffix(string(after), "alive\n") {
		t.Errorf("with a network: %s", after)
	}
}
