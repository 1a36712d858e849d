package names

import (
	"container/list"
	"errors"
	"fmt"
	"iter"
	"net/netip"
	"os"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// MostNames is how many names a guest may have at once.
const MostNames = 8192

const (
	// A program may keep an address for long. A name that was used within this time keeps its address.
	keptFor = time.Hour
	// The file has at most this many lines, of which the names need a quarter.
	linesMost = 4 * MostNames
)

// Pair is a name, and the address that stands for it.
type Pair struct {
	Address netip.Addr
	Name    string
}

// Table maps names to synthetic addresses and back. Its file keeps it when this process dies. It is safe for concurrent use.
//
// An address that stood for a name stands for no other one until all 131,070 have been used.
type Table struct {
	now func() time.Time

	mu       sync.Mutex
	journal  journal
	used     *list.List // of *entry, the least recently used first; nil until there is a name
	byName   map[string]*list.Element
	byOffset map[uint32]*list.Element
	last     uint32 // the offset that was given last
}

type entry struct {
	name   string
	offset uint32
	used   time.Time
}

// Open reads the table from its file, and owns the file from now on, also if it fails. The file must be open for reading and
// writing, not for appending, and nobody else may write to it.
func Open(file *os.File, now func() time.Time) (*Table, error) {
	flags, err := unix.FcntlInt(file.Fd(), unix.F_GETFL, 0)
	if err == nil && (flags&unix.O_ACCMODE != unix.O_RDWR || flags&unix.O_APPEND != 0) {
		err = errors.New("it is not open for reading and writing")
	}
	var made *Table
	if err == nil {
		made, err = load(file, now)
	}
	if err != nil {
		file.Close()
		return nil, fmt.Errorf("the file of a guest's names cannot be used: %w", err)
	}
	return made, nil
}

func load(kept medium, now func() time.Time) (*Table, error) {
	made := &Table{now: now, journal: journal{medium: kept}}
	changes, last, err := made.journal.read()
	if err != nil {
		return nil, err
	}
	for _, change := range changes {
		if change.name == "" {
			made.drop(made.byOffset[change.offset])
		} else {
			made.set(change.offset, change.name)
		}
	}
	made.last = last
	return made, nil
}

// AddressOf gives the address that stands for a plain name, a new one if it has none. It is false if all names are in use, or
// if the file cannot be written: after a restart the address might stand for another name.
func (t *Table) AddressOf(name string) (netip.Addr, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if known := t.byName[name]; known != nil {
		return addressAt(t.touch(known).offset), true
	}
	var oldest *list.Element
	if len(t.byName) >= MostNames {
		oldest = t.used.Front()
		if t.now().Sub(oldest.Value.(*entry).used) < keptFor {
			return netip.Addr{}, false
		}
	}
	offset := t.free()
	if !isWritable(name) || t.write(oldest, offset, name) != nil {
		return netip.Addr{}, false
	}
	t.drop(oldest)
	t.set(offset, name)
	t.last = offset
	return addressAt(offset), true
}

// NameAt gives the name for which an address stands; it is false if it stands for none.
func (t *Table) NameAt(address netip.Addr) (string, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if known := t.byOffset[offsetOf(address)]; known != nil {
		return t.touch(known).name, true
	}
	return "", false
}

// All are the names with their addresses, the least recently used first.
func (t *Table) All() []Pair {
	t.mu.Lock()
	defer t.mu.Unlock()
	all := make([]Pair, 0, len(t.byName))
	for known := range t.entries() {
		all = append(all, Pair{addressAt(known.offset), known.name})
	}
	return all
}

// TakeOver has the table hold exactly these names, which a guest knows that was restored. The least recently used come first.
// If it fails, nothing has changed.
func (t *Table) TakeOver(pairs []Pair) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	other := &Table{now: t.now}
	for _, pair := range pairs[max(0, len(pairs)-MostNames):] {
		if offset := offsetOf(pair.Address); offset != 0 && isWritable(pair.Name) {
			other.set(offset, pair.Name)
			// Which one was given last is not known. Unless all have been used, it is the highest.
			other.last = max(other.last, offset)
		}
	}
	if err := t.journal.rewrite(other.changes(), other.last); err != nil {
		return fmt.Errorf("the names of a guest cannot be taken over: %w", err)
	}
	t.used, t.byName, t.byOffset, t.last = other.used, other.byName, other.byOffset, other.last
	return nil
}

// Close closes the file. What is known can still be asked for.
func (t *Table) Close() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.journal.medium.Close()
}

// free is the next offset that stands for nothing. There are many more than names.
func (t *Table) free() uint32 {
	for offset := t.last; ; {
		offset = offset%lastOffset + 1
		if t.byOffset[offset] == nil {
			return offset
		}
	}
}

// write tells the file that an offset stands for a name, and that the oldest name is forgotten, if it is not nil.
func (t *Table) write(oldest *list.Element, offset uint32, name string) error {
	if t.journal.lines >= linesMost {
		if err := t.journal.rewrite(t.changes(), t.last); err != nil {
			return err
		}
	}
	added := change{offset, name}
	if oldest != nil {
		return t.journal.add(change{offset: oldest.Value.(*entry).offset}, added)
	}
	return t.journal.add(added)
}

// changes are all names as a file says them.
func (t *Table) changes() []change {
	made := make([]change, 0, len(t.byName))
	for known := range t.entries() {
		made = append(made, change{known.offset, known.name})
	}
	return made
}

// entries are the names, the least recently used first.
func (t *Table) entries() iter.Seq[*entry] {
	return func(yield func(*entry) bool) {
		if t.used == nil {
			return
		}
		for each := t.used.Front(); each != nil; each = each.Next() {
			if !yield(each.Value.(*entry)) {
				return
			}
		}
	}
}

// set has an offset stand for a name, and for no other one, as the most recently used.
func (t *Table) set(offset uint32, name string) {
	t.drop(t.byName[name])
	t.drop(t.byOffset[offset])
	if t.used == nil {
		t.used, t.byName, t.byOffset = list.New(), map[string]*list.Element{}, map[uint32]*list.Element{}
	}
	made := t.used.PushBack(&entry{name, offset, t.now()})
	t.byName[name], t.byOffset[offset] = made, made
}

// drop forgets a name, if it is not nil.
func (t *Table) drop(known *list.Element) {
	if known == nil {
		return
	}
	gone := t.used.Remove(known).(*entry)
	delete(t.byName, gone.name)
	delete(t.byOffset, gone.offset)
}

func (t *Table) touch(known *list.Element) *entry {
	t.used.MoveToBack(known)
	touched := known.Value.(*entry)
	touched.used = t.now()
	return touched
}

// isWritable tells whether a name is one word of a line. Plain names are.
func isWritable(name string) bool {
	return name != "" && !strings.ContainsFunc(name, func(char rune) bool { return char <= ' ' || char == 0x7f })
}
