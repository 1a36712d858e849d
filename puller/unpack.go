package main

import (
	"archive/tar"
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"os"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
)

const (
	zstdMemoryMost = 512 << 20
	zstdWindowMost = 128 << 20
	reportBytes    = 8 << 20
)

// unpackRequest names a blob and an empty directory by their descriptors.
type unpackRequest struct {
	BlobFD      int    `json:"blob_fd"`
	DirectoryFD int    `json:"directory_fd"`
	Digest      string `json:"digest"`
	DiffID      string `json:"diff_id"`
	MostBytes   int64  `json:"most_bytes"`
	MostEntries int    `json:"most_entries"`
	// "trusted." or "user.": where this kind of mount looks for the overlay's attributes.
	OverlayPrefix string `json:"overlay_prefix"`
}

type unpacked struct {
	Bytes   int64 `json:"bytes"`
	Entries int   `json:"entries"`
	Skipped int   `json:"skipped"`
	// Of entries that could not be given to their owners: uid and gid by path.
	Owners map[string][2]int `json:"owners"`
}

// unpack makes of a layer's blob its files. What is in the directory is to be used only if there is no error.
func unpack(request *unpackRequest) (any, error) {
	users, err := mappedIDs("/proc/self/uid_map")
	if err != nil {
		return nil, err
	}
	groups, err := mappedIDs("/proc/self/gid_map")
	if err != nil {
		return nil, err
	}
	file := os.NewFile(uintptr(request.BlobFD), "blob")
	defer file.Close()
	if err := lockInto(request.DirectoryFD); err != nil {
		return nil, err
	}
	packed := &counted{reader: file, hash: sha256.New()}
	plain, err := decompressed(bufio.NewReaderSize(packed, 1<<20))
	if err != nil {
		return nil, err
	}
	defer plain.Close()
	open := &counted{reader: plain, hash: sha256.New(), most: request.MostBytes}
	t := newTree(users, groups, request.OverlayPrefix, request.MostEntries, request.MostBytes)
	packed.tell = progress
	if err := t.fill(tar.NewReader(open)); err != nil {
		return nil, err
	}
	// A digest covers everything, also data after the archive's end.
	for _, each := range []io.Reader{open, packed} {
		if _, err := io.Copy(io.Discard, each); err != nil {
			return nil, err
		}
	}
	if err := errors.Join(packed.check("layer", request.Digest), open.check("content", request.DiffID)); err != nil {
		return nil, asFault(err)
	}
	return &unpacked{Bytes: max(open.count, t.bytes), Entries: t.entries, Skipped: t.skipped, Owners: t.owners}, nil
}

// decompressed reads gzip, zstd or neither, by the first bytes.
func decompressed(packed *bufio.Reader) (io.ReadCloser, error) {
	start, err := packed.Peek(4)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	switch {
	case bytes.HasPrefix(start, []byte{0x1f, 0x8b}):
		return gzip.NewReader(packed)
	case bytes.HasPrefix(start, []byte{0x28, 0xb5, 0x2f, 0xfd}):
		reader, err := zstd.NewReader(packed, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true),
			zstd.WithDecoderMaxMemory(zstdMemoryMost), zstd.WithDecoderMaxWindow(zstdWindowMost))
		if err != nil {
			return nil, err
		}
		return reader.IOReadCloser(), nil
	}
	return io.NopCloser(packed), nil
}

// counted reads on, counts, hashes, and stops after `most` bytes where that is set.
type counted struct {
	reader io.Reader
	hash   hash.Hash
	count  int64
	most   int64
	told   int64
	tell   func(int64)
}

func (c *counted) Read(into []byte) (int, error) {
	count, err := c.reader.Read(into)
	c.hash.Write(into[:count])
	c.count += int64(count)
	if c.most > 0 && c.count > c.most {
		return 0, newFault("too_big", "it has more than the %d bytes that an image may have", c.most)
	}
	if c.tell != nil && c.count-c.told >= reportBytes {
		c.told = c.count
		c.tell(c.count)
	}
	return count, err
}

func (c *counted) check(what, wanted string) error {
	if found := "sha256:" + hex.EncodeToString(c.hash.Sum(nil)); found != wanted {
		return newFault("digest", "the %s has the digest %s, not %s", what, found, wanted)
	}
	return nil
}

func invalid(name, format string, arguments ...any) error {
	return newFault("invalid", "its entry %.200q %s", name, fmt.Sprintf(format, arguments...))
}
