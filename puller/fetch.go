package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"net/http"
	"net/url"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/google/go-containerregistry/pkg/v1/remote/transport"
)

const (
	atOnce       = 3
	idleTimeout  = 60 * time.Second
	reportEvery  = 200 * time.Millisecond
	fruitless    = 4
	partialName  = ".part"
	digestPrefix = "sha256:"
)

type fetchRequest struct {
	place
	Blobs []blob `json:"blobs"`
}

// fetch brings blobs into the working directory, each under its digest, going on where an earlier one stopped.
func fetch(ctx context.Context, request *fetchRequest) (any, error) {
	sources, err := request.open()
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	for _, each := range sources {
		// Before there are threads that would each ask for a token; who has none is found out when it is asked.
		_, _ = each.transport(ctx)
	}
	var done atomic.Int64
	go report(ctx, &done)
	var group sync.WaitGroup
	slots := make(chan struct{}, atOnce)
	for _, each := range request.Blobs {
		group.Go(func() {
			slots <- struct{}{}
			defer func() { <-slots }()
			d := download{blob: each, done: &done}
			if err := d.run(ctx, sources); err != nil {
				cancel(err)
			}
		})
	}
	group.Wait()
	progress(done.Load())
	return map[string]int64{"done": done.Load()}, context.Cause(ctx)
}

func report(ctx context.Context, done *atomic.Int64) {
	ticker := time.NewTicker(reportEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
			progress(done.Load())
		case <-ctx.Done():
			return
		}
	}
}

// download is one blob on its way.
type download struct {
	blob
	file *os.File
	hash hash.Hash
	have int64
	done *atomic.Int64
}

func (d *download) run(ctx context.Context, sources []*source) error {
	digits, sha256Named := strings.CutPrefix(d.Digest, digestPrefix)
	if raw, err := hex.DecodeString(digits); !sha256Named || err != nil || len(raw) != sha256.Size {
		return newFault("invalid", "%q is not a digest", d.Digest)
	}
	name := "sha256-" + digits
	file, err := os.OpenFile(name+partialName, os.O_RDWR|os.O_CREATE|syscall.O_NOFOLLOW, 0o600)
	if err != nil {
		return err
	}
	defer file.Close()
	// Another pull may be at the same blob.
	if err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX); err != nil {
		return err
	}
	if info, err := os.Lstat(name); err == nil && info.Size() == d.Size {
		d.advance(d.Size)
		return ignoreMissing(os.Remove(name + partialName))
	}
	d.file = file
	if err := d.takeUp(); err != nil {
		return err
	}
	if _, err := fromFirst(ctx, sources, func(s *source) (any, error) { return nil, d.from(ctx, s) }); err != nil {
		return err
	}
	return os.Rename(name+partialName, name)
}

func ignoreMissing(err error) error {
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	return err
}

func (d *download) advance(count int64) {
	d.have += count
	d.done.Add(count)
}

// takeUp reads the part that is there already.
func (d *download) takeUp() error {
	d.hash = sha256.New()
	count, err := io.Copy(d.hash, d.file)
	if err != nil {
		return err
	}
	d.advance(count)
	if count > d.Size {
		return d.restart()
	}
	return nil
}

func (d *download) restart() error {
	d.advance(-d.have)
	d.hash = sha256.New()
	if err := d.file.Truncate(0); err != nil {
		return err
	}
	_, err := d.file.Seek(0, io.SeekStart)
	return err
}

// from brings the blob from one source. The rest of an earlier download may have come from another source: if the whole is
// wrong, this asks for all of it.
func (d *download) from(ctx context.Context, s *source) error {
	carrier, err := s.transport(ctx)
	if err != nil {
		return err
	}
	client := &http.Client{Transport: carrier}
	for goesOn := d.have > 0; ; goesOn = false {
		if err := d.rest(ctx, client, s); err != nil {
			return err
		}
		found := digestPrefix + hex.EncodeToString(d.hash.Sum(nil))
		if found == d.Digest {
			return nil
		}
		if err := d.restart(); err != nil {
			return err
		}
		if !goesOn {
			return newFault("digest", "%s sent %s instead of %s", s.ref.Context(), found, d.Digest)
		}
	}
}

// rest brings the missing part, and asks again as long as something comes.
func (d *download) rest(ctx context.Context, client *http.Client, s *source) error {
	url := fmt.Sprintf("%s://%s/v2/%s/blobs/%s",
		s.ref.Context().Scheme(), s.ref.Context().RegistryStr(), s.ref.Context().RepositoryStr(), d.Digest)
	pause := firstPause
	for vain := 0; d.have < d.Size; {
		before := d.have
		err := d.ask(ctx, client, url)
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if err == nil {
			continue
		}
		if code := codeOf(err); d.have > before {
			vain, pause = 0, firstPause
		} else if vain++; vain >= fruitless || code != "failed" {
			return fmt.Errorf("blob %s: %w", d.Digest, err)
		}
		time.Sleep(pause)
		pause *= 2
	}
	return nil
}

// ask makes one request and keeps all data of its answer.
func (d *download) ask(ctx context.Context, client *http.Client, url string) error {
	ctx, cancel := context.WithCancel(context.WithValue(ctx, ofBlob{}, true))
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	if d.have > 0 {
		request.Header.Set("Range", fmt.Sprintf("bytes=%d-", d.have))
	}
	response, err := client.Do(request)
	if err != nil {
		return withoutQuery(err)
	}
	defer response.Body.Close()
	if err := transport.CheckError(response, http.StatusOK, http.StatusPartialContent,
		http.StatusRequestedRangeNotSatisfiable); err != nil {
		return err
	}
	wanted := fmt.Sprintf("bytes %d-", d.have)
	goesOn := response.StatusCode == http.StatusPartialContent &&
		strings.HasPrefix(response.Header.Get("Content-Range"), wanted)
	if d.have > 0 && !goesOn {
		if err := d.restart(); err != nil {
			return err
		}
		if response.StatusCode != http.StatusOK {
			return errors.New("the registry does not resume the download where it was asked to")
		}
	}
	return d.keep(response.Body, cancel)
}

// withoutQuery leaves out of an error what an address that a registry sent elsewhere was signed with.
func withoutQuery(err error) error {
	var asked *url.Error
	if errors.As(err, &asked) {
		asked.URL, _, _ = strings.Cut(asked.URL, "?")
	}
	return err
}

func (d *download) keep(body io.Reader, cancel func()) error {
	watch := time.AfterFunc(idleTimeout, cancel)
	defer watch.Stop()
	buffer := make([]byte, 256<<10)
	for {
		count, err := body.Read(buffer)
		watch.Reset(idleTimeout)
		if count > 0 {
			if d.have+int64(count) > d.Size {
				return newFault("digest", "blob %s is longer than the %d bytes of its description", d.Digest, d.Size)
			}
			d.hash.Write(buffer[:count])
			if _, err := d.file.Write(buffer[:count]); err != nil {
				return err
			}
			d.advance(int64(count))
		}
		if errors.Is(err, io.EOF) && d.have == d.Size {
			return nil
		}
		if errors.Is(err, io.EOF) {
			return io.ErrUnexpectedEOF
		}
		if err != nil {
			return err
		}
	}
}
