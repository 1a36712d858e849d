package system

import (
	"encoding/json"
	"os"
	"path/filepath"
)

// EnvironmentFile has the environment that the host gave this life of a restored guest, as a JSON object.
// Programs that were in the checkpoint have that of the life before.
const EnvironmentFile = "/run/atoll/environment.json"

// SetEnvironment writes the file anew. Who reads it finds the old or the new one.
func (s *System) SetEnvironment(env map[string]string) error {
	text, err := json.Marshal(env)
	if err != nil {
		return err
	}
	path := s.path(EnvironmentFile)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	aside := path + ".new"
	if err := os.WriteFile(aside, text, 0o644); err != nil {
		return err
	}
	return os.Rename(aside, path)
}
