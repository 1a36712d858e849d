package kernfs

import (
	"gvisor.dev/gvisor/pkg/context"
)

// EvictCached drops all dentries that are kept although nobody refers to them.
func (fs *Filesystem) EvictCached(ctx context.Context) {
	fs.mu.Lock()
	for fs.cachedDentriesLen != 0 {
		fs.evictCachedDentryLocked(ctx)
	}
	fs.mu.Unlock()
	fs.processDeferredDecRefs(ctx)
}
