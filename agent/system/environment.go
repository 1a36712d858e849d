package system

import (
	"encoding/json"
	"os"

	"atoll/agent/regular"
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
	return s.publish(EnvironmentFile, func(path string) error {
		aside := path + ".new"
		if err := regular.Create(aside, text, 0o644); err != nil {
			return err
		}
		return os.Rename(aside, path)
	})
}
