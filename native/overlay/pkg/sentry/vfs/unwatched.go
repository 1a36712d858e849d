package vfs

import "gvisor.dev/gvisor/pkg/context"

type unwatchedKey struct{}

// Unwatched are dentries that lost their last inotify watch while a filesystem
// held locks. A watch with IN_ONESHOT goes with its first event, and events are
// told under locks that OnZeroWatches takes too.
type Unwatched struct {
	ctx      context.Context
	dentries []*Dentry
}

// DeferUnwatched returns a context for an operation that notifies watches while
// it holds locks. Whoever calls it calls Drop when the locks are free again.
func DeferUnwatched(ctx context.Context) (context.Context, *Unwatched) {
	u := &Unwatched{ctx: ctx}
	return context.WithValue(ctx, unwatchedKey{}, u), u
}

// Drop lets the filesystems of the dentries know that nobody watches them.
func (u *Unwatched) Drop() {
	for _, d := range u.dentries {
		d.OnZeroWatches(u.ctx)
	}
}

// onZeroWatches calls d.OnZeroWatches, or lets the operation of ctx do it later.
func onZeroWatches(ctx context.Context, d *Dentry) {
	if u, ok := ctx.Value(unwatchedKey{}).(*Unwatched); ok {
		u.dentries = append(u.dentries, d)
		return
	}
	d.OnZeroWatches(ctx)
}
