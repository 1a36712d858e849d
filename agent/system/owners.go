package system

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"syscall"

	"atoll/agent/fault"
)

// Owner is whose a file is. In JSON it is a list of the three, since there may be many.
type Owner struct {
	Path     string
	UID, GID int
}

// UnmarshalJSON reads ["home/user", 1000, 1000].
func (o *Owner) UnmarshalJSON(text []byte) error {
	fields := []any{&o.Path, &o.UID, &o.GID}
	return json.Unmarshal(text, &fields)
}

// Give gives files to their owners, for an image whose files could not have them on the host. Those that are
// missing are passed over.
func (s *System) Give(owners []Owner) error {
	for _, owner := range owners {
		path := s.path(filepath.Join("/", owner.Path))
		info, err := os.Lstat(path)
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err == nil {
			err = os.Lchown(path, owner.UID, owner.GID)
		}
		if err == nil && info.Mode()&(os.ModeSetuid|os.ModeSetgid) != 0 {
			// Another owner takes these away.
			err = syscall.Chmod(path, info.Sys().(*syscall.Stat_t).Mode&0o7777)
		}
		if err != nil {
			return fault.New(fault.Internal, "give %s to its owner: %v", path, err)
		}
	}
	return nil
}
