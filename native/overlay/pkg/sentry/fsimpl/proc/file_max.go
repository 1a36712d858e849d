package proc

import (
	"bytes"
	gocontext "context"
	"fmt"
	"math"

	"gvisor.dev/gvisor/pkg/context"
	"gvisor.dev/gvisor/pkg/sentry/fsimpl/kernfs"
	"gvisor.dev/gvisor/pkg/sentry/vfs"
	"gvisor.dev/gvisor/pkg/state"
)

// fileMaxData implements vfs.DynamicBytesSource for /proc/sys/fs/file-max.
type fileMaxData struct {
	kernfs.DynamicBytesFile
}

var _ dynamicInode = (*fileMaxData)(nil)

// Generate implements vfs.DynamicBytesSource.Generate.
func (*fileMaxData) Generate(_ context.Context, buf *bytes.Buffer) error {
	limit := vfs.OpenFileLimit()
	if limit == 0 {
		limit = math.MaxInt64
	}
	fmt.Fprintf(buf, "%d\n", limit)
	return nil
}

func (f *fileMaxData) StateTypeName() string {
	return "pkg/sentry/fsimpl/proc.fileMaxData"
}

func (f *fileMaxData) StateFields() []string {
	return []string{"DynamicBytesFile"}
}

func (f *fileMaxData) StateSave(stateSinkObject state.Sink) {
	stateSinkObject.Save(0, &f.DynamicBytesFile)
}

func (f *fileMaxData) StateLoad(_ gocontext.Context, stateSourceObject state.Source) {
	stateSourceObject.Load(0, &f.DynamicBytesFile)
}

func init() {
	state.Register((*fileMaxData)(nil))
}
