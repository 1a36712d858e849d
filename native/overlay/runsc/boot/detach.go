package boot

import (
	"gvisor.dev/gvisor/pkg/context"
	"gvisor.dev/gvisor/pkg/fd"
	"gvisor.dev/gvisor/pkg/sentry/checkpoint"
	"gvisor.dev/gvisor/pkg/sentry/fsimpl/gofer"
	"gvisor.dev/gvisor/pkg/sentry/pgalloc"
	"gvisor.dev/gvisor/pkg/sentry/vfs"
	"gvisor.dev/gvisor/pkg/urpc"
)

// ContMgrAttachFiles connects a sandbox to a new gofer.
const ContMgrAttachFiles = "containerManager.AttachFiles"

// DetachFiles lets go of all files of the paused sandbox: whatever they lie on may be unmounted, and its gofer ended.
func (cm *containerManager) DetachFiles(_, _ *struct{}) error {
	l := cm.l
	l.mu.Lock()
	defer l.mu.Unlock()
	l.filesDetached = true
	return l.k.DetachFiles(l.k.SupervisorContext())
}

// AttachFilesArgs are the arguments of AttachFiles; the files are connections to a gofer, in the order of its mounts.
type AttachFilesArgs struct {
	urpc.FilePayload
}

// AttachFiles undoes DetachFiles: where a gofer that was started since serves them.
func (cm *containerManager) AttachFiles(args *AttachFilesArgs, _ *struct{}) error {
	l := cm.l
	l.mu.Lock()
	defer l.mu.Unlock()
	connections, err := fd.NewFromFiles(args.Files)
	if err != nil {
		return err
	}
	root := l.root
	root.goferFDs, root.goferFilestoreFDs, root.devGoferFD = connections, nil, nil
	mounts := restoreMounts{
		fdmap:     make(map[checkpoint.ResourceID]int),
		mfmap:     make(map[checkpoint.ResourceID]*pgalloc.MemoryFile),
		sharedMfs: make(map[string]bool),
	}
	if err := l.newContainerMounter(&root).configureRestore(&mounts); err != nil {
		return err
	}
	ctx := context.WithValue(l.k.SupervisorContext(), vfs.CtxRestoreFilesystemFDMap, mounts.fdmap)
	return gofer.Budget.Without(func() error { return l.k.AttachFiles(ctx) })
}
