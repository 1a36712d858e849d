package stateio

import (
	"fmt"
	"io"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/sentry/memmap"
)

// MappedReader implements AsyncReader for a host file that it maps. It writes to the destination's file instead of reading
// into the destination's mapping.
//
// Offsets are places: what lies at FileSpan and behind is in other files, see AddBase.
type MappedReader struct {
	fd           int32
	mapping      []byte
	bases        map[uint64][]byte // Mappings by index.
	size         atomic.Int64      // What of the file is there; it may grow if follows.
	follows      bool
	parallel     int
	destinations []int32
	requests     chan mappedRead
	completions  chan Completion
	workers      sync.WaitGroup
	followers    sync.WaitGroup
	asked        int // How many reads are not told of yet.

	early chan mappedRead // Of what is not there yet.
}

// FileSpan is how far apart the beginnings of files are that are read as one: a place is the index of its file times FileSpan,
// and an offset in that file. No file of pages is as long.
const FileSpan = 1 << 40

const (
	// earlyReads is how many reads may wait for what is not there yet.
	earlyReads = 64
	growthWait = 200 * time.Microsecond

	// followedSize is more than any file of pages will have: how long it becomes is not known yet.
	followedSize = FileSpan
	askAgain     = time.Millisecond
)

type mappedRead struct {
	id  int
	off int64
	dst int32
	frs []memmap.FileRange
}

// NewPagesFileReader returns a MappedReader for a pages file, or a FDReader where it cannot be mapped. It takes ownership
// of the file descriptor.
func NewPagesFileReader(fd int32) AsyncReader {
	var stat unix.Stat_t
	if err := unix.Fstat(int(fd), &stat); err != nil {
		return NewPagesFileFDReaderDefault(fd)
	}
	// Even an empty one may be followed: then the mapping is another.
	mapping, err := unix.Mmap(int(fd), 0, int(max(stat.Size, 1)), unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		return NewPagesFileFDReaderDefault(fd)
	}
	// Most pages come from the host's page cache, so this is processor time that the guest wants too.
	workers := max(1, runtime.NumCPU()/2)
	r := &MappedReader{
		fd:          fd,
		mapping:     mapping,
		parallel:    workers,
		requests:    make(chan mappedRead, max(workers, earlyReads)),
		completions: make(chan Completion, max(workers, earlyReads)),
		early:       make(chan mappedRead, max(workers, earlyReads)),
	}
	r.size.Store(stat.Size)
	r.workers.Add(workers)
	for range workers {
		go r.work()
	}
	return r
}

// AddBase has what lies at index*FileSpan and behind be read from another file, which the caller still has to close. It must be
// called before anything is read.
func (r *MappedReader) AddBase(index uint64, fd int) error {
	var stat unix.Stat_t
	if err := unix.Fstat(fd, &stat); err != nil {
		return err
	}
	if stat.Size == 0 {
		return nil // It holds nothing.
	}
	if _, ok := r.bases[index]; ok || index == 0 {
		return fmt.Errorf("there are two files of earlier pages %d", index)
	}
	mapping, err := unix.Mmap(fd, 0, int(stat.Size), unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		return err
	}
	if r.bases == nil {
		r.bases = make(map[uint64][]byte)
	}
	r.bases[index] = mapping
	return nil
}

// Holds returns whether a file of earlier pages has so many bytes at a place. Of the pages file itself that is not known yet
// if it grows.
func (r *MappedReader) Holds(place, length uint64) bool {
	index := place / FileSpan
	return index == 0 || place%FileSpan+length <= uint64(len(r.bases[index]))
}

// Dup returns another descriptor of the pages file itself.
func (r *MappedReader) Dup() (int, error) {
	return unix.Dup(int(r.fd))
}

// Follow has reads of what lies behind the file's end wait until it is there, for a file that somebody else still writes,
// from its beginning to its end. It must be called before anything is read.
func (r *MappedReader) Follow() error {
	mapping, err := unix.Mmap(int(r.fd), 0, followedSize, unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		return err
	}
	if err := unix.Munmap(r.mapping); err != nil {
		return err
	}
	r.mapping = mapping
	r.follows = true
	r.parallel = cap(r.requests)
	r.followers.Add(1)
	go r.readEarly()
	return nil
}

func (r *MappedReader) work() {
	defer r.workers.Done()
	for read := range r.requests {
		if r.follows && !r.isThere(read) {
			r.early <- read
			continue
		}
		r.serve(read)
	}
}

func (r *MappedReader) serve(read mappedRead) {
	n, err := r.copy(read)
	r.completions <- Completion{ID: read.id, N: n, Err: err}
}

// isThere returns whether all of a read is there, or never will be.
func (r *MappedReader) isThere(read mappedRead) bool {
	end := read.off
	for _, fr := range read.frs {
		end += int64(fr.Length())
	}
	if end <= r.size.Load() || end > int64(len(r.mapping)) || read.off >= FileSpan {
		return true
	}
	var stat unix.Stat_t
	if err := unix.Fstat(int(r.fd), &stat); err != nil {
		return true
	}
	for {
		// Another may have seen more of it meanwhile.
		size := r.size.Load()
		if stat.Size <= size || r.size.CompareAndSwap(size, stat.Size) {
			return end <= stat.Size
		}
	}
}

// readEarly serves reads that came too early.
func (r *MappedReader) readEarly() {
	defer r.followers.Done()
	var early []mappedRead
	for {
		if len(early) == 0 {
			read, ok := <-r.early
			if !ok {
				return
			}
			early = append(early, read)
		}
		time.Sleep(growthWait)
		for more := true; more; {
			select {
			case read, ok := <-r.early:
				if !ok {
					return
				}
				early = append(early, read)
			default:
				more = false
			}
		}
		early = slices.DeleteFunc(early, func(read mappedRead) bool {
			there := r.isThere(read)
			if there {
				r.serve(read)
			}
			return there
		})
	}
}

func (r *MappedReader) copy(read mappedRead) (uint64, error) {
	var done uint64
	index, start := uint64(read.off)/FileSpan, uint64(read.off)%FileSpan
	mapping := r.mapping
	if index > 0 {
		mapping = r.bases[index]
	}
	for _, fr := range read.frs {
		for fr.Start < fr.End {
			off, size := start+done, uint64(len(mapping))
			if index == 0 {
				size = min(size, uint64(r.size.Load()))
			}
			if off >= size {
				return done, io.EOF
			}
			end := min(off+fr.Length(), size)
			n, err := unix.Pwrite(int(read.dst), mapping[off:end], int64(fr.Start))
			if err == unix.EINTR {
				continue
			}
			if err != nil {
				return done, err
			}
			if n == 0 {
				return done, io.ErrUnexpectedEOF
			}
			fr.Start += uint64(n)
			done += uint64(n)
		}
	}
	return done, nil
}

// Close implements AsyncReader.Close.
func (r *MappedReader) Close() error {
	close(r.requests)
	r.workers.Wait()
	close(r.early)
	r.followers.Wait()
	for _, fd := range r.destinations {
		unix.Close(int(fd))
	}
	for _, mapping := range r.bases {
		unix.Munmap(mapping)
	}
	err := unix.Munmap(r.mapping)
	if closeErr := unix.Close(int(r.fd)); err == nil {
		err = closeErr
	}
	return err
}

// MaxReadBytes implements AsyncReader.MaxReadBytes.
func (r *MappedReader) MaxReadBytes() uint64 {
	return pagesFileFDDefaultMaxIOBytes
}

// MaxRanges implements AsyncReader.MaxRanges.
func (r *MappedReader) MaxRanges() int {
	return pagesFileFDDefaultMaxIOBytes / unix.Getpagesize()
}

// MaxParallel implements AsyncReader.MaxParallel.
func (r *MappedReader) MaxParallel() int {
	return r.parallel
}

// NeedRegisterDestinationFD implements AsyncReader.NeedRegisterDestinationFD.
func (r *MappedReader) NeedRegisterDestinationFD() bool {
	return true
}

// RegisterDestinationFD implements AsyncReader.RegisterDestinationFD.
func (r *MappedReader) RegisterDestinationFD(fd int32, _ uint64, _ []ClientFileRangeSetting) (DestinationFile, error) {
	own, err := unix.Dup(int(fd))
	if err != nil {
		return nil, err
	}
	r.destinations = append(r.destinations, int32(own))
	return int32(own), nil
}

// AddRead implements AsyncReader.AddRead.
func (r *MappedReader) AddRead(id int, off int64, dst DestinationFile, fr memmap.FileRange, _ []byte) {
	r.asked++
	r.requests <- mappedRead{id: id, off: off, dst: dst.(int32), frs: []memmap.FileRange{fr}}
}

// AddReadv implements AsyncReader.AddReadv.
func (r *MappedReader) AddReadv(id int, off int64, _ uint64, dst DestinationFile, frs []memmap.FileRange, _ []unix.Iovec) {
	r.asked++
	r.requests <- mappedRead{id: id, off: off, dst: dst.(int32), frs: frs}
}

// Wait implements AsyncReader.Wait, but in a file that grows it may return without a completion if there is room for more
// reads: of what is there already nothing needs to wait for what is not.
func (r *MappedReader) Wait(cs []Completion, minCompletions int) ([]Completion, error) {
	before := len(cs)
	defer func() { r.asked -= len(cs) - before }()
	for i := 0; ; i++ {
		if i < minCompletions {
			if r.follows && r.asked < r.parallel {
				select {
				case c := <-r.completions:
					cs = append(cs, c)
				case <-time.After(askAgain):
					return cs, nil
				}
			} else {
				cs = append(cs, <-r.completions)
			}
			continue
		}
		select {
		case c := <-r.completions:
			cs = append(cs, c)
		default:
			return cs, nil
		}
	}
}
