package files

import (
	"slices"

	"atoll/agent/fault"
)

// Join makes one file of several, in their order, and removes those when it is complete.
func (w Work) Join(sources []string, to string) error {
	if slices.Contains(sources, to) {
		return fault.New(fault.Invalid, "%s is a source and the destination", to)
	}
	for _, path := range sources {
		file, _, err := w.Open(path)
		if err != nil {
			return err
		}
		file.Close()
	}
	out, err := w.Create(to, NoMode)
	if err != nil {
		return err
	}
	defer out.Close()
	for _, path := range sources {
		file, _, err := w.Open(path)
		if err != nil {
			return err
		}
		_, err = Copy(out, file)
		file.Close()
		if err != nil {
			return Named(err, to)
		}
	}
	for _, path := range sources {
		if err := w.Remove(path); err != nil {
			return err
		}
	}
	return nil
}
