package files

import (
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"atoll/agent/user"
)

// The kinds of files.
const (
	KindFile      = "file"
	KindDirectory = "directory"
	KindSymlink   = "symlink"
	KindOther     = "other"
)

// File describes a file; Mode holds the bits of chmod(2).
type File struct {
	Name       string  `json:"name"`
	Path       string  `json:"path"`
	Kind       string  `json:"kind"`
	SizeBytes  int64   `json:"size_bytes"`
	Mode       uint32  `json:"mode"`
	Owner      string  `json:"owner"`
	Group      string  `json:"group"`
	ModifiedAt float64 `json:"modified_at"`
	Target     string  `json:"target,omitempty"`
}

const modeBits = 0o7777

func describe(path string, info fs.FileInfo, users *user.Database) File {
	file := File{Name: filepath.Base(path), Path: path, Kind: kindOf(info.Mode()), SizeBytes: info.Size()}
	file.ModifiedAt = float64(info.ModTime().UnixMicro()) / 1e6
	if raw, ok := info.Sys().(*syscall.Stat_t); ok {
		file.Mode = raw.Mode & modeBits
		file.Owner, file.Group = users.OwnerName(raw.Uid), users.GroupName(raw.Gid)
	}
	if file.Kind == KindSymlink {
		// A link that vanished meanwhile has no target.
		file.Target, _ = os.Readlink(path)
	}
	return file
}

func kindOf(mode fs.FileMode) string {
	switch {
	case mode.IsRegular():
		return KindFile
	case mode.IsDir():
		return KindDirectory
	case mode&fs.ModeSymlink != 0:
		return KindSymlink
	}
	return KindOther
}
