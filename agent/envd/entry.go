package envd

import (
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"atoll/agent/files"
	"atoll/agent/user"
)

const (
	typeFile      = "FILE_TYPE_FILE"
	typeDirectory = "FILE_TYPE_DIRECTORY"
	typeSymlink   = "FILE_TYPE_SYMLINK"
)

// entry is E2B's EntryInfo; its size is text because JSON numbers hold no 64 bits.
type entry struct {
	Name          string            `json:"name"`
	Type          string            `json:"type,omitempty"`
	Path          string            `json:"path"`
	Size          string            `json:"size"`
	Mode          uint32            `json:"mode"`
	Permissions   string            `json:"permissions"`
	Owner         string            `json:"owner"`
	Group         string            `json:"group"`
	ModifiedTime  string            `json:"modifiedTime"`
	SymlinkTarget string            `json:"symlinkTarget,omitempty"`
	Metadata      map[string]string `json:"metadata,omitempty"`
	IsSymlink     bool              `json:"isSymlink,omitempty"`
}

// describe must run with the user's rights. The type of a symbolic link is that of what it leads to.
func describe(path string, info fs.FileInfo, users *user.Database) entry {
	e := entry{
		Name: filepath.Base(path), Path: path, Type: typeOf(info.Mode()),
		Size: strconv.FormatInt(info.Size(), 10), Permissions: info.Mode().String(),
		Mode:         uint32(info.Mode().Perm()),
		ModifiedTime: info.ModTime().UTC().Format(time.RFC3339Nano),
	}
	if raw, ok := info.Sys().(*syscall.Stat_t); ok {
		e.Owner, e.Group = users.OwnerName(raw.Uid), users.GroupName(raw.Gid)
	}
	if info.Mode()&fs.ModeSymlink != 0 {
		e.IsSymlink = true
		e.SymlinkTarget, e.Type = followed(path)
		return e
	}
	if info.Mode().IsRegular() {
		e.Metadata = files.Metadata(path)
	}
	return e
}

func followed(path string) (target, kind string) {
	target, err := filepath.EvalSymlinks(path)
	if err != nil {
		target, _ = os.Readlink(path)
		return target, typeSymlink
	}
	info, err := os.Stat(target)
	if err != nil {
		return target, typeSymlink
	}
	return target, typeOf(info.Mode())
}

func typeOf(mode fs.FileMode) string {
	switch {
	case mode.IsDir():
		return typeDirectory
	case mode.IsRegular():
		return typeFile
	case mode&fs.ModeSymlink != 0:
		return typeSymlink
	}
	return ""
}

// entryOf describes one path for a user.
func (a *API) entryOf(work files.Work, path string) (*entry, error) {
	var found entry
	err := work.Account.Act(func() error {
		info, err := os.Lstat(path)
		if err == nil {
			found = describe(path, info, a.Settings.Users)
		}
		return err
	})
	if err != nil {
		return nil, files.Named(err, path)
	}
	return &found, nil
}

func isASCII(text string) bool {
	return !strings.ContainsFunc(text, func(r rune) bool { return r > 126 || r < 32 })
}
