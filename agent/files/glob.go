package files

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"atoll/agent/fault"
)

// seenMost is how many entries a glob may look at.
const seenMost = 5_000_000

// GlobDepth is how many levels below its beginning a pattern can match: of `*/*.go` two, of `**/*.go` any number.
func GlobDepth(pattern string) int {
	if strings.Contains(pattern, "**") || strings.Contains(pattern, "{") {
		return seenMost
	}
	return strings.Count(strings.Trim(pattern, "/"), "/") + 1
}

type globbing struct {
	work  Work
	match func(path, name string) bool
	dots  bool
	left  int
	found []File
}

// Glob describes the entries below a directory whose relative paths match: in lexical order, and without names that begin
// with a dot unless hidden is set. It follows no links, and leaves out unreadable directories.
func (w Work) Glob(path string, match func(path, name string) bool, depth int, hidden bool) ([]File, error) {
	g := &globbing{work: w, match: match, dots: hidden, left: seenMost, found: []File{}}
	err := w.Account.Act(func() error {
		if err := isDirectory(path); err != nil {
			return err
		}
		return g.directory(path, "", depth)
	})
	return g.found, Named(err, path)
}

func (g *globbing) directory(path, below string, depth int) error {
	entries, err := os.ReadDir(path)
	if err != nil && (below == "" || !errors.Is(err, fs.ErrPermission) && !errors.Is(err, fs.ErrNotExist)) {
		return err
	}
	for _, entry := range entries {
		name := entry.Name()
		if name[0] == '.' && !g.dots {
			continue
		}
		if g.left--; g.left < 0 {
			return fault.New(fault.FileFailed, "more than %d entries; begin deeper", seenMost)
		}
		full := filepath.Join(path, name)
		if g.match(below+name, name) {
			if err := g.add(full, entry); err != nil {
				return err
			}
		}
		if entry.IsDir() && depth > 1 && !virtual[full] {
			if err := g.directory(full, below+name+"/", depth-1); err != nil {
				return err
			}
		}
	}
	return nil
}

// virtual are the kernel's own trees, which change while they are listed.
var virtual = map[string]bool{"/proc": true, "/sys": true}

func (g *globbing) add(path string, entry fs.DirEntry) error {
	info, err := entry.Info()
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if len(g.found) == ListMost {
		return fault.New(fault.FileFailed, "more than %d entries match; give a narrower pattern", ListMost)
	}
	g.found = append(g.found, describe(path, info, g.work.Users))
	return nil
}
