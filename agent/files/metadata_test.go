package files

import (
	"errors"
	"maps"
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

func TestMetadataOfAnotherFileThatTookThePathStays(t *testing.T) {
	w, base := work(t)
	path, moved := filepath.Join(base, "f"), filepath.Join(base, "moved")
	file, err := w.Create(path, NoMode)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	err = SetMetadata(file, map[string]string{"kept": "1", "old": "2"})
	if errors.Is(err, syscall.ENOTSUP) {
		return // A disk without attributes has none to lose.
	}
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(path, moved); err != nil {
		t.Fatal(err)
	}
	put(t, w, path, "another")
	if err := syscall.Setxattr(path, metadataPrefix+"theirs", []byte("x"), 0); err != nil {
		t.Fatal(err)
	}
	if err := SetMetadata(file, map[string]string{"kept": "3"}); err != nil {
		t.Fatal(err)
	}
	if found := Metadata(moved); !maps.Equal(found, map[string]string{"kept": "3"}) {
		t.Errorf("the open file has %v", found)
	}
	if found := Metadata(path); !maps.Equal(found, map[string]string{"theirs": "x"}) {
		t.Errorf("the other file has %v", found)
	}
}
