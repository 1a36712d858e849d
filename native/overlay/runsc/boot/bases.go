package boot

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/sentry/control"
	"gvisor.dev/gvisor/pkg/sentry/kernel"
	"gvisor.dev/gvisor/pkg/sentry/pgalloc"
	"gvisor.dev/gvisor/pkg/sentry/state/stateio"
)

const (
	basePrefix = "pages-"
	baseSuffix = ".img"
)

// OpenBases opens the files of earlier checkpoints in the directory of a checkpoint: pages-N.img, where N is their index.
func (o *RestoreOpts) OpenBases(directory string) error {
	entries, err := os.ReadDir(directory)
	if err != nil {
		return err
	}
	for _, entry := range entries {
		name, isBase := strings.CutPrefix(entry.Name(), basePrefix)
		name, hasEnd := strings.CutSuffix(name, baseSuffix)
		if !isBase || !hasEnd {
			continue
		}
		path := filepath.Join(directory, entry.Name())
		index, err := strconv.ParseUint(name, 10, 16)
		if err != nil || index == 0 || slices.Contains(o.Bases, index) {
			return fmt.Errorf("%q is no file of an earlier checkpoint", path)
		}
		file, err := os.Open(path)
		if err != nil {
			return err
		}
		o.Bases = append(o.Bases, index)
		o.FilePayload.Files = append(o.FilePayload.Files, file)
	}
	return nil
}

// keepFiles has pages be read from the bases of a checkpoint too, and later checkpoints refer to its files.
func (r *restorer) keepFiles(o *RestoreOpts, pagesFile stateio.AsyncReader) error {
	reader, ok := pagesFile.(*stateio.MappedReader)
	if !ok {
		if len(o.Bases) > 0 {
			return fmt.Errorf("a checkpoint with bases cannot be mapped")
		}
		return nil
	}
	if len(o.Files) < 3+len(o.Bases) {
		return fmt.Errorf("there are %d files for %d bases", len(o.Files), len(o.Bases))
	}
	own, err := reader.Dup()
	if err != nil {
		return err
	}
	files := map[uint64]pgalloc.Base{}
	keep := func(index uint64, fd int) error {
		file, err := pgalloc.NewBase(fd)
		if err == nil {
			files[index] = file
		}
		return err
	}
	if err := keep(0, own); err != nil {
		return err
	}
	for i, index := range o.Bases {
		file, err := o.ReleaseFD(3 + i)
		if err != nil {
			return err
		}
		fd := file.Release()
		if err := reader.AddBase(index, fd); err != nil {
			unix.Close(fd)
			return err
		}
		if err := keep(index, fd); err != nil {
			return err
		}
	}
	if r.cm.l.root.spec.Annotations["atoll.refers"] == "true" {
		r.mainMF.KeepFiles(files)
		return nil
	}
	for _, file := range files {
		file.Close()
	}
	return nil
}

// takeBases has a checkpoint refer to the files that follow its own three in the payload, if the caller can follow that.
func takeBases(o *control.SaveOpts, way *kernel.SaveWay) error {
	if _, ok := o.Metadata["refers"]; !ok {
		return nil
	}
	delete(o.Metadata, "refers")
	if len(o.Files) < 3 {
		return fmt.Errorf("got %d files, wanted 3 or more", len(o.Files))
	}
	files, err := basesOf(o.Files[2:])
	if err != nil {
		return err
	}
	for _, file := range o.Files[3:] {
		file.Close()
	}
	o.Files = o.Files[:3]
	way.Pages, way.Bases = &files[0], files[1:]
	return nil
}

// basesOf returns files of pages, which the caller still has to close.
func basesOf(files []*os.File) (_ []pgalloc.Base, retErr error) {
	var bases []pgalloc.Base
	defer func() {
		if retErr != nil {
			for _, base := range bases {
				base.Close()
			}
		}
	}()
	for _, file := range files {
		fd, err := unix.Dup(int(file.Fd()))
		if err != nil {
			return nil, err
		}
		base, err := pgalloc.NewBase(fd)
		if err != nil {
			return nil, err
		}
		bases = append(bases, base)
	}
	return bases, nil
}

// UsedBases returns how many bytes of each base the last checkpoint refers to, if its pages are written.
func (cm *containerManager) UsedBases(_ *struct{}, used *[]uint64) error {
	*used = kernel.UsedBases()
	return nil
}
