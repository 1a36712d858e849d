package kernel

import "gvisor.dev/gvisor/pkg/context"

// DetachFiles closes all that applications have open on the host, mapped files too.
//
// Preconditions: The kernel is paused, and stays so until AttachFiles has returned.
func (k *Kernel) DetachFiles(ctx context.Context) error {
	return k.quiescePausedAnd(ctx, func() error {
		if err := k.invalidateUnsavableMappings(ctx); err != nil {
			return err
		}
		return k.vfs.Detach(ctx)
	})
}

// AttachFiles opens again what DetachFiles has closed. The context has the filesystems' new connections, see
// vfs.RestoreFilesystemFDMapFromContext.
func (k *Kernel) AttachFiles(ctx context.Context) error {
	return k.quiescePausedAnd(ctx, func() error { return k.vfs.Attach(ctx) })
}
