package names

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
)

// medium is the part of a file that a journal needs.
type medium interface {
	io.ReaderAt
	io.WriterAt
	Truncate(size int64) error
	Close() error
}

// change is a line of a journal: from now on an offset stands for a name, or for nothing.
type change struct {
	offset uint32
	name   string // empty: for nothing
}

// journal is the file of a table. It has these lines:
//
//	OFFSET NAME    the address stands for the name
//	-OFFSET        it stands for nothing any more
//	>OFFSET NAME   the same as the first, but it counts only when a mark follows
//	=COUNT LAST    a mark: only the last COUNT lines with > before it hold; LAST is the offset that was given last
//
// There is only one descriptor, so the file cannot be replaced by another one. Even so it always has all valid changes,
// whenever this process is killed: see rewrite. A line without its end was never finished and is left out. Nobody has got
// the address in it. What the host's kernel has not stored yet is lost when the host loses power, and the guest with it.
type journal struct {
	medium medium
	size   int64 // of the whole lines
	lines  int
	isTorn bool // there is a part of a line behind them
}

// read gives the changes that hold, in order, and the offset that was given last.
func (j *journal) read() (changes []change, last uint32, err error) {
	// Whoever opened the file shares its position, so that is not used.
	reader := bufio.NewReader(io.NewSectionReader(j.medium, 0, math.MaxInt64))
	var pending []change
	for {
		line, err := reader.ReadString('\n')
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, 0, err
		}
		j.size += int64(len(line))
		j.lines++
		line = line[:len(line)-1]
		if text, isMark := strings.CutPrefix(line, "="); isMark {
			if count, given, ok := parseMark(text, len(pending)); ok {
				changes, last = pending[len(pending)-count:], given
				pending, j.lines = nil, count+1
			}
			continue
		}
		text, isPending := strings.CutPrefix(line, ">")
		switch found, ok := parseChange(text); {
		case !ok:
		case isPending:
			pending = append(pending, found)
		default:
			changes = append(changes, found)
			if found.name != "" {
				last = found.offset
			}
		}
	}
	return changes, last, j.medium.Truncate(j.size)
}

// add writes lines at the end.
func (j *journal) add(changes ...change) error {
	var text []byte
	for _, each := range changes {
		text = each.appendTo(text)
	}
	return j.append(text, len(changes))
}

// rewrite has the file say nothing but these changes, which are all names.
//
// First they are added, and a mark behind them. Until the mark is whole, they do not count. Once it is, nothing before them
// counts. So they can be written at the beginning too, and the rest be cut off.
func (j *journal) rewrite(changes []change, last uint32) error {
	var text []byte
	for _, each := range changes {
		text = each.appendTo(append(text, '>'))
	}
	text = fmt.Appendf(text, "=%d %d\n", len(changes), last)
	before := j.size
	if err := j.append(text, 0); err != nil {
		return err
	}
	j.lines = len(changes) + 1
	if int64(len(text)) > before {
		return nil // they would be written over themselves; the next time will do
	}
	// From here on the file is right with each byte that is written. An error, too, only leaves it longer.
	if _, err := j.medium.WriteAt(text, 0); err != nil {
		return nil
	}
	if err := j.medium.Truncate(int64(len(text))); err == nil {
		j.size = int64(len(text))
	}
	return nil
}

func (j *journal) append(text []byte, lines int) error {
	if j.isTorn {
		if err := j.medium.Truncate(j.size); err != nil {
			return err
		}
		j.isTorn = false
	}
	if _, err := j.medium.WriteAt(text, j.size); err != nil {
		// A shorter line would leave the end of this one behind itself.
		j.isTorn = j.medium.Truncate(j.size) != nil
		return err
	}
	j.size += int64(len(text))
	j.lines += lines
	return nil
}

func (c change) appendTo(text []byte) []byte {
	if c.name == "" {
		return fmt.Appendf(text, "-%d\n", c.offset)
	}
	return fmt.Appendf(text, "%d %s\n", c.offset, c.name)
}

func parseChange(line string) (change, bool) {
	if text, isGone := strings.CutPrefix(line, "-"); isGone {
		offset, ok := parseOffset(text)
		return change{offset: offset}, ok
	}
	text, name, _ := strings.Cut(line, " ")
	offset, ok := parseOffset(text)
	return change{offset, name}, ok && isWritable(name)
}

// parseMark reads what is behind the sign of a mark that has so many changes before it.
func parseMark(text string, most int) (count int, last uint32, ok bool) {
	counted, given, _ := strings.Cut(text, " ")
	number, err := strconv.ParseUint(counted, 10, 31)
	if given != "0" { // no name has ever been given an address
		if last, ok = parseOffset(given); !ok {
			return 0, 0, false
		}
	}
	return int(number), last, err == nil && number <= uint64(most)
}

func parseOffset(text string) (uint32, bool) {
	offset, err := strconv.ParseUint(text, 10, 32)
	return uint32(offset), err == nil && 0 < offset && offset <= lastOffset
}
