package search

import (
	"bytes"
	"context"
	"errors"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"unicode/utf8"

	"atoll/agent/fault"
	"atoll/agent/files"
	"atoll/agent/user"
)

const (
	workers = 4
	// As many files of one directory are searched by one worker, while others take the next.
	batchFiles  = 32
	pieceBytes  = 256 << 10
	contextSize = 200
	// TextMost is how much of a line is told.
	TextMost = 1000
)

var errLost = errors.New("a worker of the search was lost")

// Match is a line that matches. The line's text is cut where it is long, so that it holds the match's beginning.
type Match struct {
	Path   string `json:"path"`
	Line   int    `json:"line"`
	Column int    `json:"column"`
	Text   string `json:"text"`
	Cut    bool   `json:"cut,omitempty"`
}

// Summary says what was looked at.
type Summary struct {
	Files      int64 `json:"files"`
	Matches    int64 `json:"matches"`
	Unreadable int64 `json:"unreadable"`
	Truncated  bool  `json:"truncated"`
}

// Query says what to search for, where, and how much of it to tell.
type Query struct {
	Pattern    *Pattern
	Globs      *Globs
	Hidden     bool // also what has a name that begins with a dot
	MaxMatches int64
	MaxBytes   int64 // of the matches' texts
}

type job struct {
	path  string   // of a directory, or of that which has the files
	below string   // the same from where the search began, with a slash at its end or empty
	files []string // none: the directory is to be read
}

// run is one search.
type run struct {
	Query
	context context.Context
	tell    func([]Match)

	mu      sync.Mutex // guards the following
	changed *sync.Cond
	jobs    []job
	busy    int

	stopped                           atomic.Bool
	searched, told, bytes, unreadable atomic.Int64
}

// Run searches a directory, or one file, with an account's rights. tell gets some matches at once, from several
// goroutines; it may wait. Nothing is followed: links, pipes, sockets and devices are left out.
func (q Query) Run(ctx context.Context, account *user.Account, path string, tell func([]Match)) (Summary, error) {
	r := &run{Query: q, context: ctx, tell: tell}
	r.changed = sync.NewCond(&r.mu)
	if err := account.Act(func() error { return r.begin(path) }); err != nil {
		return Summary{}, files.Named(err, path)
	}
	done := context.AfterFunc(ctx, r.stop)
	defer done()
	failures := make(chan error, workers)
	for range workers {
		go func() {
			failed := errLost
			// Also where the goroutine has to end in the middle, as one that cannot get its rights back does.
			defer func() { failures <- failed }()
			failed = account.Act(r.work)
		}()
	}
	var failed error
	for range workers {
		if err := <-failures; err != nil {
			failed = err
			r.stop()
		}
	}
	return r.summary(), failed
}

func (r *run) summary() Summary {
	return Summary{
		Files: r.searched.Load(), Matches: min(r.told.Load(), r.MaxMatches), Unreadable: r.unreadable.Load(),
		Truncated: r.stopped.Load(),
	}
}

func (r *run) begin(path string) error {
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	switch {
	case info.Mode().IsRegular():
		directory, name := split(path)
		r.jobs = []job{{path: directory, files: []string{name}}}
	case info.IsDir():
		directory, err := os.Open(path)
		if err != nil {
			return err
		}
		directory.Close()
		r.jobs = []job{{path: strings.TrimSuffix(path, "/")}}
	default:
		return fault.New(fault.FileFailed, "%s is neither a file nor a directory", path)
	}
	return nil
}

func split(path string) (directory, name string) {
	at := strings.LastIndexByte(path, '/')
	return path[:at], path[at+1:]
}

func (r *run) stop() {
	r.stopped.Store(true)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.changed.Broadcast()
}

// work does jobs until there are none and nobody can bring more.
func (r *run) work() error {
	w := &worker{run: r, finder: newFinder(r.Pattern), piece: make([]byte, pieceBytes)}
	w.entryRows = make([]byte, entriesBytes)
	for {
		next, ok := r.take()
		if !ok {
			return nil
		}
		w.do(next)
		r.done()
	}
}

func (r *run) take() (job, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for len(r.jobs) == 0 && r.busy > 0 && !r.stopped.Load() {
		r.changed.Wait()
	}
	if len(r.jobs) == 0 || r.stopped.Load() {
		return job{}, false
	}
	last := len(r.jobs) - 1
	next := r.jobs[last]
	r.jobs[last] = job{}
	r.jobs = r.jobs[:last]
	r.busy++
	return next, true
}

func (r *run) done() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.busy--; r.busy == 0 && len(r.jobs) == 0 {
		r.changed.Broadcast()
	}
}

func (r *run) add(jobs []job) {
	if len(jobs) == 0 {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.jobs = append(r.jobs, jobs...)
	r.changed.Broadcast()
}

// worker has what one goroutine needs for its jobs.
type worker struct {
	*run
	finder
	piece     []byte
	entryRows []byte
	entries   []entry
	matches   []Match
}

func (w *worker) do(next job) {
	if next.files == nil {
		w.directory(next)
	}
	for _, name := range next.files {
		if w.stopped.Load() {
			break
		}
		w.file(next.path + "/" + name)
	}
	w.flush()
}

// virtual are the kernel's own, whose files have no end or do something when they are read.
var virtual = map[string]bool{"/proc": true, "/sys": true, "/dev": true}

func (w *worker) directory(next job) {
	var err error
	path := next.path
	if path == "" {
		path = "/"
	}
	w.entries, err = entriesOf(path, w.entryRows, w.entries[:0])
	if err != nil && next.below == "" {
		// Where a search begins may be a link.
		w.entries, err = entriesOf(path+"/.", w.entryRows, w.entries[:0])
	}
	if err != nil {
		w.unreadable.Add(1)
	}
	var jobs []job
	var names []string
	for _, one := range w.entries {
		below := next.below + one.name
		switch {
		case one.name[0] == '.' && !w.Hidden:
		case one.directory:
			if full := next.path + "/" + one.name; !virtual[full] && w.Globs.Directory(below, one.name) {
				jobs = append(jobs, job{path: full, below: below + "/"})
			}
		case w.Globs.File(below, one.name):
			if names = append(names, one.name); len(names) == batchFiles {
				jobs = append(jobs, job{path: next.path, files: names})
				names = nil
			}
		}
	}
	w.add(jobs)
	for _, name := range names {
		if w.stopped.Load() {
			return
		}
		w.file(next.path + "/" + name)
	}
}

// file searches one file by pieces of whole lines. A line that fills a piece is cut there.
func (w *worker) file(path string) {
	fd, err := open(path, openFlags)
	if err != nil {
		if err != syscall.ENOENT {
			w.unreadable.Add(1)
		}
		return
	}
	defer syscall.Close(fd)
	w.searched.Add(1)
	line, kept := 1, 0
	for first := true; !w.stopped.Load(); first = false {
		size, err := again(func() (int, error) { return syscall.Read(fd, w.piece[kept:]) })
		if err != nil {
			w.unreadable.Add(1)
			return
		}
		data := w.piece[:kept+size]
		if first && bytes.IndexByte(data, 0) >= 0 {
			return // it is no text
		}
		whole := len(data)
		if size > 0 {
			if whole = bytes.LastIndexByte(data, '\n') + 1; whole == 0 {
				if kept = len(data); kept < len(w.piece) {
					continue
				}
				whole = kept
			}
		}
		line = w.lines(path, data[:whole], line)
		if size == 0 {
			return
		}
		kept = copy(w.piece, data[whole:])
	}
}

// lines searches lines of which the first has that number, and returns the number of the one that follows them.
func (w *worker) lines(path string, data []byte, line int) int {
	counted := 0
	w.each(data, func(start, end, at int) bool {
		line += bytes.Count(data[counted:start], []byte{'\n'})
		counted = start
		return w.match(path, line, data[start:end], at)
	})
	return line + bytes.Count(data[counted:], []byte{'\n'})
}

func (w *worker) match(path string, line int, text []byte, at int) bool {
	shown, cut := excerpt(bytes.TrimSuffix(text, []byte{'\r'}), at)
	if w.told.Add(1) > w.MaxMatches || w.bytes.Add(int64(len(shown)+len(path))) > w.MaxBytes {
		w.stop()
		return false
	}
	w.matches = append(w.matches, Match{
		Path: path, Line: line, Column: utf8.RuneCount(text[:at]) + 1, Text: string(shown), Cut: cut,
	})
	if len(w.matches) == cap(w.matches) && len(w.matches) >= batchFiles {
		w.flush()
	}
	return !w.stopped.Load()
}

func excerpt(text []byte, at int) ([]byte, bool) {
	if len(text) <= TextMost {
		return text, false
	}
	start := max(0, min(at-contextSize, len(text)-TextMost))
	return text[start : start+TextMost], true
}

func (w *worker) flush() {
	if len(w.matches) > 0 {
		w.tell(w.matches)
		w.matches = nil
	}
}
