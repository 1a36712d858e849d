package overlay

import (
	"fmt"
	"math/rand/v2"
	"time"

	"gvisor.dev/gvisor/pkg/context"
	"gvisor.dev/gvisor/pkg/errors/linuxerr"
	"gvisor.dev/gvisor/pkg/fspath"
	"gvisor.dev/gvisor/pkg/log"
	"gvisor.dev/gvisor/pkg/sentry/vfs"
)

var inconsistencies = log.BasicRateLimitedLogger(time.Minute)

// inconsistent tells of layers that show something else than the overlay does,
// after a failure that could not be undone. Whoever owns the layers can always
// bring this about, by changing them behind the overlay's back.
func inconsistent(what string, err error) {
	inconsistencies.Warningf("overlay: failed %s; the layers disagree now: %v", what, err)
}

// prepareWhiteoutLocked makes a spare whiteout in the upper layer of parent if
// name would appear from a lower layer without one. It returns nil if not.
//
// Preconditions:
//   - fs.renameMu must be locked.
//   - parent.dirMu must be locked.
//   - parent.isCopiedUp().
func (fs *filesystem) prepareWhiteoutLocked(ctx context.Context, parent *dentry, name string) (*vfs.PathOperation, error) {
	layer, err := fs.lookupLayerIn(ctx, parent, name, true /* lowerOnly */)
	if err != nil || layer == lookupLayerNone {
		return nil, err
	}
	// Under a name that nothing has it hides nothing, and nobody sees it in the overlay.
	for {
		spare := &vfs.PathOperation{
			Root:  parent.upperVD,
			Start: parent.upperVD,
			Path:  fspath.Parse(fmt.Sprintf("#%x", rand.Uint64())),
		}
		err := CreateWhiteout(ctx, fs.vfsfs.VirtualFilesystem(), fs.creds, spare)
		if err == nil {
			return spare, nil
		}
		if !linuxerr.Equals(linuxerr.EEXIST, err) {
			return nil, err
		}
	}
}

// placeWhiteout gives a spare whiteout, if there is one, the name that it hides.
func (fs *filesystem) placeWhiteout(ctx context.Context, spare, pop *vfs.PathOperation) error {
	if spare == nil {
		return nil
	}
	if err := fs.vfsfs.VirtualFilesystem().RenameAt(ctx, fs.creds, spare, pop, &vfs.RenameOptions{}); err != nil {
		inconsistent("to hide a name of a lower layer", err)
		return linuxerr.EIO
	}
	return nil
}

// dropWhiteout removes a spare whiteout, if there is one.
func (fs *filesystem) dropWhiteout(ctx context.Context, spare *vfs.PathOperation) {
	if spare == nil {
		return
	}
	if err := fs.vfsfs.VirtualFilesystem().UnlinkAt(ctx, fs.creds, spare); err != nil {
		inconsistent("to remove a spare whiteout", err)
	}
}

// makeOpaqueLocked prepares d, which is at pop in the upper layer, for its move
// to name in parent. The move needs a copy instead (EXDEV) if d must be opaque
// there and the upper layer has no room for such an attribute.
//
// Preconditions:
//   - fs.renameMu must be locked.
//   - parent.dirMu must be locked.
//   - d and all of its descendants are copied up.
func (fs *filesystem) makeOpaqueLocked(ctx context.Context, d *dentry, pop *vfs.PathOperation, parent *dentry, name string) error {
	if !d.isDir() {
		return nil
	}
	err := fs.vfsfs.VirtualFilesystem().SetXattrAt(ctx, fs.creds, pop, &vfs.SetXattrOptions{
		Name:  fs.xattrOpaque,
		Value: "y",
	})
	if err == nil {
		return nil
	}
	layer, lookupErr := fs.lookupLayerIn(ctx, parent, name, true /* lowerOnly */)
	if lookupErr != nil {
		return lookupErr
	}
	if layer == lookupLayerNone {
		return nil
	}
	if linuxerr.Equals(linuxerr.EPERM, err) || linuxerr.Equals(linuxerr.EOPNOTSUPP, err) {
		return linuxerr.EXDEV
	}
	return err
}
