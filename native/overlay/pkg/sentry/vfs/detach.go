package vfs

import (
	"fmt"

	"gvisor.dev/gvisor/pkg/context"
)

// FilesystemImplDetachExtension is an optional extension to FilesystemImpl.
type FilesystemImplDetachExtension interface {
	FilesystemImplSaveRestoreExtension

	// Detach closes what the filesystem has open on the host. It was prepared for a save, and
	// CompleteRestore opens it again, maybe elsewhere.
	Detach(ctx context.Context) error
}

// Detach has all filesystems that are the host's close what they have open there.
func (vfs *VirtualFilesystem) Detach(ctx context.Context) error {
	return vfs.forEachDetachable(ctx,
		func(ext FilesystemImplDetachExtension) error { return ext.PrepareSave(ctx) },
		func(ext FilesystemImplDetachExtension) error { return ext.Detach(ctx) },
	)
}

// Attach has all filesystems that are the host's open what they had open there.
func (vfs *VirtualFilesystem) Attach(ctx context.Context) error {
	return vfs.forEachDetachable(ctx, func(ext FilesystemImplDetachExtension) error {
		return ext.CompleteRestore(ctx, CompleteRestoreOptions{})
	})
}

func (vfs *VirtualFilesystem) forEachDetachable(ctx context.Context, steps ...func(FilesystemImplDetachExtension) error) error {
	fss := vfs.GetFilesystems()
	defer func() {
		for _, fs := range fss {
			fs.DecRef(ctx)
		}
	}()
	for _, step := range steps {
		for _, fs := range fss {
			if ext, ok := fs.impl.(FilesystemImplDetachExtension); ok {
				if err := step(ext); err != nil {
					return fmt.Errorf("filesystem of type %q: %w", fs.fsType.Name(), err)
				}
			}
		}
	}
	return nil
}
