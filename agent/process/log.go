package process

import (
	"sync"

	"atoll/agent/frames"
)

const (
	keptBytes = 1 << 20
	// blockCost stands for what a block costs beside its bytes, so that many tiny blocks stay bounded too.
	blockCost = 64
)

// End says how a process ended.
type End struct {
	ExitCode int    `json:"exit_code"`
	Signal   int    `json:"signal"`
	TimedOut bool   `json:"timed_out"`
	Error    string `json:"error"`
	// MemoryKill is the last of its programs, itself included, that was killed because memory ran out.
	MemoryKill *MemoryKill `json:"memory_kill,omitempty"`
}

// Log keeps the newest output of a process and feeds it to its followers.
//
// What a follower has not read yet is never dropped: Append waits for it, unless the log hurries.
type Log struct {
	mu        sync.Mutex
	room      sync.Cond
	blocks    []block
	cost      int
	head      int64
	most      int
	hurries   bool // followers that are far behind miss output
	followers map[*Follower]struct{}
	end       *End
	left      *int64 // how far the follower had read that left last, until one resumes there
}

type block struct {
	kind  byte
	start int64
	data  []byte
}

func (b *block) stop() int64 { return b.start + int64(len(b.data)) }

// Follower reads a log at its own pace. Wake receives when there may be more to Take.
type Follower struct {
	Wake   chan struct{}
	Missed bool  // whether output was dropped before the follower came
	Kept   int64 // how much of what it takes first was written before it came
	log    *Log
	cursor int64
}

var blockPool = sync.Pool{New: func() any { return new([frames.MaxPayload]byte) }}

// NewLog keeps as much as the log of a program, and waits for no follower.
func NewLog() *Log {
	l := newLog(keptBytes)
	l.hurries = true
	return l
}

func newLog(most int) *Log {
	l := &Log{most: most, followers: map[*Follower]struct{}{}}
	l.room.L = &l.mu
	return l
}

// Append adds output, at most frames.MaxPayload bytes, and waits while a follower is far behind.
func (l *Log) Append(kind byte, data []byte) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for !l.hurries && l.behind() >= int64(l.most) {
		l.room.Wait()
	}
	l.add(kind, data)
	l.trim()
	l.wake()
}

func (l *Log) add(kind byte, data []byte) {
	if last := len(l.blocks) - 1; last >= 0 {
		tail := &l.blocks[last]
		if tail.kind == kind && len(tail.data)+len(data) <= frames.MaxPayload {
			tail.data = append(tail.data, data...)
			l.cost += len(data)
			l.head += int64(len(data))
			return
		}
	}
	var own []byte
	if len(data) >= frames.MaxPayload/2 {
		own = append(blockPool.Get().(*[frames.MaxPayload]byte)[:0], data...)
	} else {
		own = append(own, data...)
	}
	l.blocks = append(l.blocks, block{kind: kind, start: l.head, data: own})
	l.cost += len(data) + blockCost
	l.head += int64(len(data))
}

func (l *Log) behind() int64 {
	var most int64
	for follower := range l.followers {
		most = max(most, l.head-follower.cursor)
	}
	return most
}

func (l *Log) trim() {
	oldest := l.head
	for follower := range l.followers {
		if !l.hurries {
			oldest = min(oldest, follower.cursor)
		}
	}
	drop := 0
	for drop < len(l.blocks)-1 && l.cost > l.most && l.blocks[drop].stop() <= oldest {
		gone := &l.blocks[drop]
		l.cost -= len(gone.data) + blockCost
		if cap(gone.data) == frames.MaxPayload {
			blockPool.Put((*[frames.MaxPayload]byte)(gone.data[:frames.MaxPayload]))
		}
		*gone = block{}
		drop++
	}
	l.blocks = l.blocks[drop:]
}

func (l *Log) wake() {
	for follower := range l.followers {
		select {
		case follower.Wake <- struct{}{}:
		default:
		}
	}
}

// Finish says that the process ended; later output is not taken any more.
func (l *Log) Finish(end End) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.end = &end
	l.wake()
}

// forget drops the kept output of an ended process.
func (l *Log) forget() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.blocks, l.cost = nil, 0
}

func (l *Log) size() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.cost
}

// Follow starts to read, at the oldest kept output or at output from now on. Close ends it.
func (l *Log) Follow(kept bool) *Follower {
	l.mu.Lock()
	defer l.mu.Unlock()
	cursor := l.head
	if kept && len(l.blocks) > 0 {
		cursor = l.blocks[0].start
	}
	follower := l.follow(cursor)
	follower.Missed = kept && cursor > 0
	follower.Kept = l.head - cursor
	return follower
}

// Resume starts to read where the last follower to Leave had stopped, or at output from now on. Only one follower continues
// from there: another that resumes starts at output from then on.
func (l *Log) Resume() *Follower {
	l.mu.Lock()
	defer l.mu.Unlock()
	cursor := l.head
	if l.left != nil {
		cursor, l.left = *l.left, nil
	}
	return l.follow(cursor)
}

func (l *Log) follow(cursor int64) *Follower {
	follower := &Follower{Wake: make(chan struct{}, 1), log: l, cursor: cursor}
	l.followers[follower] = struct{}{}
	if l.end != nil || cursor < l.head {
		follower.Wake <- struct{}{}
	}
	return follower
}

// Take copies what comes next, of one kind. With nothing to copy it returns 0 bytes, and the end if that was all.
func (f *Follower) Take(into []byte) (kind byte, count int, end *End) {
	l := f.log
	l.mu.Lock()
	defer l.mu.Unlock()
	for i := l.firstAfter(f.cursor); i < len(l.blocks) && count < len(into); i++ {
		found := &l.blocks[i]
		if count > 0 && found.kind != kind {
			break
		}
		if f.cursor < found.start {
			f.cursor, f.Missed = found.start, true
		}
		kind = found.kind
		copied := copy(into[count:], found.data[f.cursor-found.start:])
		count += copied
		f.cursor += int64(copied)
	}
	if count > 0 {
		l.room.Broadcast()
		return kind, count, nil
	}
	return 0, 0, l.end
}

func (l *Log) firstAfter(cursor int64) int {
	low, high := 0, len(l.blocks)
	for low < high {
		middle := (low + high) / 2
		if l.blocks[middle].stop() <= cursor {
			low = middle + 1
		} else {
			high = middle
		}
	}
	return low
}

// Close stops following, so that the process does not wait for this follower any more.
func (f *Follower) Close() {
	f.log.mu.Lock()
	defer f.log.mu.Unlock()
	delete(f.log.followers, f)
	f.log.room.Broadcast()
}

// Leave closes it, so that the next one that resumes goes on from here.
func (f *Follower) Leave() {
	f.Close()
	f.log.mu.Lock()
	defer f.log.mu.Unlock()
	f.log.left = &f.cursor
}

// Return gives back the bytes taken last: they did not reach anybody.
func (f *Follower) Return(count int) {
	f.log.mu.Lock()
	defer f.log.mu.Unlock()
	f.cursor -= int64(count)
}
