package overlay

import "gvisor.dev/gvisor/pkg/sentry/vfs"

// maxStackDepth is how many overlays may lie on each other, as on Linux. Each
// call goes down through all of them, on one stack.
const maxStackDepth = 2

// stackDepth returns how many overlays lie on each other at vd.
func stackDepth(vd vfs.VirtualDentry) int {
	if !vd.Ok() {
		return 0
	}
	fs, ok := vd.Mount().Filesystem().Impl().(*filesystem)
	if !ok {
		return 0
	}
	depth := stackDepth(fs.opts.UpperRoot)
	for _, lower := range fs.opts.LowerRoots {
		depth = max(depth, stackDepth(lower))
	}
	return depth + 1
}
