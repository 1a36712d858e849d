package vfs

import (
	"testing"

	"gvisor.dev/gvisor/pkg/abi/linux"
	"gvisor.dev/gvisor/pkg/context"
)

// watchedDentry counts how often it is told that nobody watches it any more.
type watchedDentry struct {
	DentryImpl
	vfsd      Dentry
	watches   Watches
	unwatched int
}

func (d *watchedDentry) Watches() *Watches             { return &d.watches }
func (d *watchedDentry) OnZeroWatches(context.Context) { d.unwatched++ }

// watchOnce returns a dentry with one watch for an event of mask.
func watchOnce(mask uint32) (*Inotify, *watchedDentry) {
	d := &watchedDentry{}
	d.vfsd.Init(d)
	i := &Inotify{id: 1, watches: make(map[int32]*Watch)}
	i.AddWatch(&d.vfsd, mask|linux.IN_ONESHOT)
	return i, d
}

func TestAnOperationWithLocksTellsOfUnwatchedFilesWhenItIsDone(t *testing.T) {
	outer := context.Background()
	i, d := watchOnce(linux.IN_CREATE)
	ctx, unwatched := DeferUnwatched(outer)
	d.watches.Notify(ctx, "name", linux.IN_CREATE, 0, InodeEvent, false)
	if d.unwatched != 0 {
		t.Error("the filesystem is called while it holds its locks")
	}
	if len(i.watches) != 0 || d.watches.Size() != 0 {
		t.Error("the watch is still there after its event")
	}
	unwatched.Drop()
	if d.unwatched != 1 {
		t.Errorf("the filesystem is told %d times", d.unwatched)
	}
}

func TestOtherOperationsTellOfThemAtOnce(t *testing.T) {
	_, d := watchOnce(linux.IN_ATTRIB)
	d.watches.Notify(context.Background(), "", linux.IN_ATTRIB, 0, InodeEvent, false)
	if d.unwatched != 1 {
		t.Errorf("the filesystem is told %d times", d.unwatched)
	}
}

func TestADeletedFileIsDroppedByWhoDeletesIt(t *testing.T) {
	i, d := watchOnce(linux.IN_DELETE_SELF)
	d.watches.HandleDeletion(context.Background())
	if d.unwatched != 0 {
		t.Error("the filesystem is called while it holds its locks")
	}
	if len(i.watches) != 0 || d.watches.Size() != 0 {
		t.Error("the watch is still there after the end of its file")
	}
	for _, mask := range []uint32{linux.IN_DELETE_SELF, linux.IN_IGNORED} {
		event := i.events.Front()
		if event == nil || event.mask != mask {
			t.Fatalf("event %+v is not %#x", event, mask)
		}
		i.events.Remove(event)
	}
}
