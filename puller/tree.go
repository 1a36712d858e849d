package main

import (
	"archive/tar"
	"errors"
	"io"
	"maps"
	"os"
	"path"
	"slices"
	"strings"
	"syscall"
	"time"
)

const (
	nameMost = 4096
	idMost   = 1<<32 - 2
	// Of all names together: what this process keeps in memory.
	namesMost = 256 << 20
)

// tree is the layer that this process is locked into: every path is relative to it, and stays in it.
type tree struct {
	users, groups []idRange
	overlay       string
	mostEntries   int
	mostBytes     int64
	entries       int
	bytes         int64 // of files, holes included
	nameBytes     int
	skipped       int
	owners        map[string][2]int    // where nothing can belong to anybody but root
	own           map[string]bool      // with merged layers: this layer's own entries
	made          map[string]bool      // directories that are known to be there
	times         map[string]time.Time // of directories, set when nothing more comes into them
	buffer        []byte
}

func newTree(users, groups []idRange, overlayPrefix string, mostEntries int, mostBytes int64) *tree {
	return &tree{
		users: users, groups: groups, overlay: overlayPrefix, mostEntries: mostEntries, mostBytes: mostBytes,
		own: map[string]bool{}, made: map[string]bool{".": true}, times: map[string]time.Time{}, owners: map[string][2]int{}, buffer: make([]byte, 256<<10),
	}
}

func (t *tree) fill(archive *tar.Reader) error {
	for {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return t.setTimes()
		}
		if err != nil {
			return err
		}
		if err := t.count(); err != nil {
			return err
		}
		if t.nameBytes += len(header.Name); t.nameBytes > namesMost {
			return newFault("too_many", "the names of its files have more than %d bytes", namesMost)
		}
		if err := t.entry(header, archive); err != nil {
			return err
		}
	}
}

// count counts an entry, or a directory that no entry but those in it tells of.
func (t *tree) count() error {
	if t.entries++; t.entries > t.mostEntries {
		return newFault("too_many", "it has more than the %d files that an image may have", t.mostEntries)
	}
	return nil
}

func (t *tree) setTimes() error {
	for _, name := range slices.Backward(slices.Sorted(maps.Keys(t.times))) {
		// It may have been replaced by a later entry.
		if err := setTime(name, t.times[name]); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
	}
	return nil
}

// inside makes a name of the archive one below the layer.
func inside(raw string) (string, error) {
	if len(raw) > nameMost || strings.ContainsRune(raw, 0) {
		return "", invalid(raw, "has an invalid file name")
	}
	if slices.Contains(strings.Split(raw, "/"), "..") {
		return "", invalid(raw, "leads out of its layer")
	}
	return strings.TrimPrefix(path.Clean("/"+raw), "/"), nil
}

func (t *tree) entry(header *tar.Header, content io.Reader) error {
	if header.Typeflag == tar.TypeXGlobalHeader {
		return nil
	}
	name, err := inside(header.Name)
	if err != nil {
		return err
	}
	if name == "" {
		name = "."
	}
	if t.merges() && (hasOneID(t.users) || hasOneID(t.groups)) {
		if header.Uid < 0 || header.Gid < 0 || header.Uid > idMost || header.Gid > idMost {
			return invalid(header.Name, "has an invalid owner")
		}
		t.noteOwner(name, header)
		header.Uid, header.Gid = 0, 0
	}
	if !isMapped(t.users, header.Uid) || !isMapped(t.groups, header.Gid) {
		return newFault("ids", "its file %.200q belongs to user %d and group %d, but this user has only the ids %s",
			name, header.Uid, header.Gid, mapText(t.users, t.groups))
	}
	if err := t.parents(path.Dir(name)); err != nil {
		return err
	}
	if base := path.Base(name); strings.HasPrefix(base, whiteoutPrefix) {
		return t.whiteout(path.Dir(name), base)
	}
	t.claim(name)
	switch header.Typeflag {
	case tar.TypeChar, tar.TypeBlock:
		// A sandbox has devices of its own.
		t.skipped++
		return nil
	case tar.TypeDir:
		return t.directory(name, header)
	}
	if name == "." {
		return invalid(header.Name, "stands for the layer itself, but is not a directory")
	}
	if err := t.clear(name); err != nil {
		return err
	}
	switch header.Typeflag {
	case tar.TypeReg, tar.TypeCont, tar.TypeGNUSparse:
		return t.file(name, header, content)
	case tar.TypeSymlink:
		return t.symlink(name, header)
	case tar.TypeLink:
		return t.hardLink(name, header)
	case tar.TypeFifo:
		return t.fifo(name, header)
	}
	return invalid(header.Name, "is of the unknown type %q", header.Typeflag)
}

// parents makes sure of the directory that an entry goes into. Links to directories of the layer are followed.
func (t *tree) parents(directory string) error {
	if t.made[directory] {
		return nil
	}
	if err := t.parents(path.Dir(directory)); err != nil {
		return err
	}
	info, err := os.Stat(directory)
	switch {
	case errors.Is(err, os.ErrNotExist):
		if err := t.count(); err != nil {
			return err
		}
		if err := os.Mkdir(directory, 0o755); err != nil {
			return invalid(directory, "must be a directory, but cannot be created: %v", err)
		}
		if err := errors.Join(t.mark(directory, markImplied), t.mark(".", markImplies)); err != nil {
			return err
		}
	case err != nil:
		return invalid(directory, "must be a directory, but cannot be entered: %v", err)
	case isWhiteout(info):
		if err := t.opaqueInsteadOf(directory); err != nil {
			return err
		}
	case !info.IsDir():
		return invalid(directory, "must be a directory, but is not one")
	}
	t.made[directory] = true
	return nil
}

// clear removes the result of an earlier entry of the same name.
func (t *tree) clear(name string) error {
	if _, err := os.Lstat(name); errors.Is(err, os.ErrNotExist) {
		return nil
	}
	clear(t.made)
	t.made["."] = true
	return os.RemoveAll(name)
}

func (t *tree) directory(name string, header *tar.Header) error {
	info, err := os.Lstat(name)
	switch {
	case errors.Is(err, os.ErrNotExist):
		err = os.Mkdir(name, 0o700)
	case err == nil && isWhiteout(info):
		err = t.opaqueInsteadOf(name)
	case err == nil && !info.IsDir():
		if err = t.clear(name); err == nil {
			err = os.Mkdir(name, 0o700)
		}
	}
	if err == nil {
		err = t.unmark(name, markImplied)
	}
	if err != nil {
		return err
	}
	t.made[name] = true
	t.times[name] = header.ModTime
	if err := os.Lchown(name, header.Uid, header.Gid); err != nil {
		return err
	}
	if err := setAttributes(name, header); err != nil {
		return err
	}
	return syscall.Chmod(name, modeOf(header))
}

func modeOf(header *tar.Header) uint32 { return uint32(header.Mode) & 0o7777 }
