// Command puller brings images from registries and unpacks their layers.
//
// Each step is a process of its own with a request as JSON and the fewest rights that do it: `resolve` and `fetch`
// become an ordinary user once they have read the host's credentials, `unpack` and `seam` are locked into the directory
// of the layer that they make.
// Progress goes to standard error and the result to standard output, both as JSON lines.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
)

const requestMost = 16 << 20

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	result, err := step(ctx, os.Args)
	if err != nil {
		result = map[string]*fault{"error": asFault(err)}
	}
	if encoded := json.NewEncoder(os.Stdout).Encode(result); encoded != nil || err != nil {
		os.Exit(1)
	}
}

func step(ctx context.Context, argv []string) (any, error) {
	if len(argv) != 2 {
		return nil, newFault("invalid", "usage: puller resolve|fetch|unpack|seam, with a request on standard input")
	}
	switch argv[1] {
	case "resolve":
		return withRequest(func(r *resolveRequest) (any, error) { return r.told(resolve(ctx, r)) })
	case "fetch":
		return withRequest(func(r *fetchRequest) (any, error) { return r.told(fetch(ctx, r)) })
	case "unpack":
		return withRequest(func(r *unpackRequest) (any, error) { return unpack(r) })
	case "seam":
		return withRequest(func(r *seamRequest) (any, error) { return makeSeam(r) })
	}
	return nil, newFault("invalid", "there is no step %q", argv[1])
}

func withRequest[T any](do func(*T) (any, error)) (any, error) {
	request := new(T)
	if err := json.NewDecoder(io.LimitReader(os.Stdin, requestMost)).Decode(request); err != nil {
		return nil, newFault("invalid", "the request cannot be read: %v", err)
	}
	return do(request)
}

// progress is one line on standard error: bytes that have come.
func progress(done int64) {
	fmt.Fprintf(os.Stderr, "{\"done\":%d}\n", done)
}
