package stateio

import (
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/sentry/memmap"
)

func newWriter(t *testing.T, content string) (*FDWriter, string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "pages")
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	number, err := unix.Open(path, unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	w := NewFDWriter(int32(number), 1<<20, 16, 4)
	t.Cleanup(func() { w.Close() })
	return w, path
}

func TestWhatIsWrittenComesBehindWhatIsThere(t *testing.T) {
	w, path := newWriter(t, "ahead")
	w.AddWrite(0, nil, memmap.FileRange{}, []byte(" and "))
	w.AddWrite(1, nil, memmap.FileRange{}, []byte("since"))
	cs, err := w.Wait(nil, 2)
	if err != nil || len(cs) != 2 || cs[0].Err != nil || cs[1].Err != nil {
		t.Fatalf("%v, %v", cs, err)
	}
	if got, err := os.ReadFile(path); string(got) != "ahead and since" {
		t.Errorf("%q, %v", got, err)
	}
}

func TestAFileThatIsWrittenInOrderTakesOneWriteAtATime(t *testing.T) {
	w, _ := newWriter(t, "")
	if got := w.MaxParallel(); got != 4 {
		t.Errorf("MaxParallel() = %d", got)
	}
	w.InOrder()
	if got := w.MaxParallel(); got != 1 {
		t.Errorf("in order MaxParallel() = %d", got)
	}
}
