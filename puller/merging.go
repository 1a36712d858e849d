package main

import (
	"archive/tar"
	"errors"
	"os"
	"path"
)

// merges tells whether the layers of an image all go into one directory, where nothing can be mounted on another.
func (t *tree) merges() bool { return t.overlay == "" }

// claim notes this layer's own entries, which its own whiteouts do not hide.
func (t *tree) claim(name string) {
	for ; t.merges() && name != "." && !t.own[name]; name = path.Dir(name) {
		t.own[name] = true
	}
}

// removeLower removes a name of lower layers, with everything in it.
func (t *tree) removeLower(name string) error {
	info, err := os.Lstat(name)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if name != "." && !t.own[name] {
		return t.clear(name)
	}
	if !info.IsDir() {
		return nil
	}
	entries, err := os.ReadDir(name)
	if err != nil {
		return err
	}
	for _, entry := range entries {
		if err := t.removeLower(path.Join(name, entry.Name())); err != nil {
			return err
		}
	}
	return nil
}

// noteOwner keeps whose an entry is; of root's only what may have been somebody else's in a layer below.
func (t *tree) noteOwner(name string, header *tar.Header) {
	if header.Uid == 0 && header.Gid == 0 {
		if _, err := os.Lstat(name); err != nil {
			return
		}
	}
	t.owners[name] = [2]int{header.Uid, header.Gid}
}

// hasOneID tells whether there is but one number here, so that nothing can belong to anybody else.
func hasOneID(ranges []idRange) bool { return len(ranges) == 1 && ranges[0].count == 1 }
