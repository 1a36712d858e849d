package system

import (
	"os"
	"path/filepath"
	"strconv"
)

// GenerationFile holds the number of the guest's life: another one after each restore.
const GenerationFile = "/run/atoll/generation"

// SetGeneration writes the number. The file stays the same file, so that a program can watch it,
// and at every moment it holds the old number or the new one.
func (s *System) SetGeneration(generation int64) error {
	path := s.path(GenerationFile)
	text := strconv.FormatInt(generation, 10) + "\n"
	if old, err := os.ReadFile(path); err == nil && string(old) == text {
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE, 0o644)
	if err != nil {
		return err
	}
	defer file.Close()
	if _, err := file.WriteString(text); err != nil {
		return err
	}
	// Who watches is told of a cut too, and numbers only grow: there is nothing to cut off unless somebody else wrote here.
	if info, err := file.Stat(); err != nil || info.Size() == int64(len(text)) {
		return err
	}
	return file.Truncate(int64(len(text)))
}
