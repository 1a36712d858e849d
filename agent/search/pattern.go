// Package search looks for text in files.
package search

import (
	"bytes"
	"regexp"
	"regexp/syntax"
	"strings"
	"unicode/utf8"

	"atoll/agent/fault"
)

const (
	patternMost  = 10_000
	literalsMost = 16
)

// Pattern finds lines. It is safe for concurrent use.
type Pattern struct {
	lines   *regexp.Regexp // none where the literal says it all
	program *syntax.Prog
	// One of these is in every line that matches: to look for them is many times as fast as an expression.
	literals [][]byte
	folded   bool // the literals are in lower case and match either
}

// NewPattern compiles an expression (RE2), or with literal a text. A match never reaches beyond a line.
func NewPattern(pattern string, literal, ignoreCase bool) (*Pattern, error) {
	if pattern == "" || len(pattern) > patternMost {
		return nil, fault.New(fault.Invalid, "a pattern has from 1 to %d bytes", patternMost)
	}
	// The flags without OneLine: ^ and $ are those of lines.
	flags := syntax.PerlX | syntax.UnicodeGroups
	if ignoreCase {
		flags |= syntax.FoldCase
	}
	if literal {
		flags |= syntax.Literal
	}
	tree, err := syntax.Parse(pattern, flags)
	if err != nil {
		return nil, fault.New(fault.Invalid, "the pattern: %v", err)
	}
	if !withinLine(tree) {
		return nil, fault.New(fault.Invalid, "the pattern has a line break, but a match is within one line")
	}
	p := &Pattern{}
	if p.lines, err = regexp.Compile(tree.String()); err != nil {
		return nil, fault.New(fault.Invalid, "the pattern: %v", err)
	}
	simple := tree.Simplify()
	if p.program, err = syntax.Compile(simple); err != nil {
		return nil, fault.New(fault.Invalid, "the pattern: %v", err)
	}
	p.setLiterals(required(simple))
	if tree.Op == syntax.OpLiteral && len(p.literals) == 1 && !p.folded {
		p.lines = nil
	}
	return p, nil
}

// withinLine takes line breaks out of all that may match one, and tells whether something is left.
func withinLine(tree *syntax.Regexp) bool {
	switch tree.Op {
	case syntax.OpLiteral:
		for _, char := range tree.Rune {
			if char == '\n' {
				return false
			}
		}
	case syntax.OpCharClass:
		tree.Rune = withoutBreak(tree.Rune)
		if len(tree.Rune) == 0 {
			return false
		}
	case syntax.OpAnyChar:
		tree.Op = syntax.OpAnyCharNotNL
	case syntax.OpBeginText:
		tree.Op = syntax.OpBeginLine
	case syntax.OpEndText:
		tree.Op = syntax.OpEndLine
	}
	for _, below := range tree.Sub {
		if !withinLine(below) {
			return false
		}
	}
	return true
}

func withoutBreak(ranges []rune) []rune {
	var kept []rune
	for i := 0; i < len(ranges); i += 2 {
		low, high := ranges[i], ranges[i+1]
		if low > '\n' || high < '\n' {
			kept = append(kept, low, high)
			continue
		}
		if low < '\n' {
			kept = append(kept, low, '\n'-1)
		}
		if high > '\n' {
			kept = append(kept, '\n'+1, high)
		}
	}
	return kept
}

type text struct {
	chars  string
	folded bool
}

// required returns texts of which one is in everything that matches, or none where no such texts are known.
func required(tree *syntax.Regexp) []text {
	switch tree.Op {
	case syntax.OpLiteral:
		chars, folded := string(tree.Rune), tree.Flags&syntax.FoldCase != 0
		if !utf8.ValidString(chars) {
			return nil
		}
		if folded {
			chars = foldable(chars)
		}
		if chars == "" {
			return nil
		}
		return []text{{chars, folded}}
	case syntax.OpCapture, syntax.OpPlus:
		return required(tree.Sub[0])
	case syntax.OpRepeat:
		if tree.Min > 0 {
			return required(tree.Sub[0])
		}
	case syntax.OpConcat:
		var best []text
		for _, below := range tree.Sub {
			if found := required(below); better(found, best) {
				best = found
			}
		}
		return best
	case syntax.OpAlternate:
		var all []text
		for _, below := range tree.Sub {
			found := required(below)
			if found == nil || len(all)+len(found) > literalsMost {
				return nil
			}
			all = append(all, found...)
		}
		return all
	}
	return nil
}

// foldable returns the longest part of a text that has two cases at most: k and s have a third beyond ASCII.
func foldable(chars string) string {
	best := ""
	for _, part := range strings.FieldsFunc(strings.ToLower(chars), func(char rune) bool {
		return char >= utf8.RuneSelf || char == 'k' || char == 's'
	}) {
		if len(part) > len(best) {
			best = part
		}
	}
	return best
}

func better(found, than []text) bool {
	if found == nil || than == nil {
		return found != nil
	}
	return shortest(found)*len(than) > shortest(than)*len(found)
}

func shortest(of []text) int {
	size := len(of[0].chars)
	for _, one := range of {
		size = min(size, len(one.chars))
	}
	return size
}

func (p *Pattern) setLiterals(found []text) {
	for _, one := range found {
		p.folded = p.folded || one.folded
	}
	for _, one := range found {
		chars := one.chars
		if p.folded && !one.folded {
			// Only some are folded: what all are looked for in is in lower case.
			if chars = foldable(chars); chars == "" {
				p.literals, p.folded = nil, false
				return
			}
		}
		p.literals = append(p.literals, []byte(chars))
	}
}

// finder looks through one piece of text after another; each worker has its own.
type finder struct {
	*Pattern
	automaton *automaton // none where literals are as good
	lower     []byte
	next      []int // of each literal, where it comes next; beyond the end if nowhere
}

func newFinder(pattern *Pattern) finder {
	f := finder{Pattern: pattern}
	if pattern.lines != nil && !pattern.distinct() {
		f.automaton = newAutomaton(pattern.program)
	}
	return f
}

// distinct tells whether few lines have one of the literals, as far as that can be known: single characters are in many.
func (p *Pattern) distinct() bool {
	for _, literal := range p.literals {
		if len(literal) < 2 {
			return false
		}
	}
	return len(p.literals) > 0
}

// each calls found with the bounds of each line of the text that matches, and where in it, until it returns false.
func (f *finder) each(data []byte, found func(start, end, at int) bool) {
	if len(f.literals) == 0 && f.automaton == nil {
		f.eachByExpression(data, found)
		return
	}
	sought := data
	if f.folded && f.automaton == nil {
		f.lower = toLower(f.lower, data)
		sought = f.lower
	}
	f.next = f.next[:0]
	for range f.literals {
		f.next = append(f.next, -1)
	}
	for from := 0; from < len(data); {
		var at int
		if f.automaton != nil {
			at = f.automaton.candidate(data, from)
		} else {
			at = f.candidate(sought, from)
		}
		if at >= len(data) {
			return
		}
		start, end := bounds(data, at)
		match := at - start
		if f.lines != nil {
			match = -1
			if place := f.lines.FindIndex(data[start:end]); place != nil {
				match = place[0]
			}
		}
		if match >= 0 && !found(start, end, match) {
			return
		}
		from = end + 1
	}
}

// candidate returns where the next literal is, or the end.
func (f *finder) candidate(data []byte, from int) int {
	first := len(data)
	for i, literal := range f.literals {
		if f.next[i] < from {
			f.next[i] = len(data)
			if at := bytes.Index(data[from:], literal); at >= 0 {
				f.next[i] = from + at
			}
		}
		first = min(first, f.next[i])
	}
	return first
}

// A row of lines so short that the expression is tried by backtracking, which is faster than all else that it can do.
const sliceBytes = 4 << 10

func (f *finder) eachByExpression(data []byte, found func(start, end, at int) bool) {
	for from := 0; from < len(data); {
		upTo := len(data)
		if from+sliceBytes < upTo {
			_, upTo = bounds(data, from+sliceBytes)
		}
		place := f.lines.FindIndex(data[from:upTo])
		if place == nil {
			from = upTo + 1
			continue
		}
		at := from + place[0]
		if at == len(data) && data[at-1] == '\n' {
			return // what follows the last line break is no line
		}
		start, end := bounds(data, at)
		if !found(start, end, at-start) {
			return
		}
		from = end + 1
	}
}

// bounds returns the line around a place, without its line break.
func bounds(data []byte, at int) (start, end int) {
	start = bytes.LastIndexByte(data[:at], '\n') + 1
	end = len(data)
	if size := bytes.IndexByte(data[at:], '\n'); size >= 0 {
		end = at + size
	}
	return start, end
}

var lowerOf = func() (table [256]byte) {
	for i := range table {
		table[i] = byte(i)
		if 'A' <= i && i <= 'Z' {
			table[i] = byte(i) + 'a' - 'A'
		}
	}
	return table
}()

func toLower(into, data []byte) []byte {
	if cap(into) < len(data) {
		into = make([]byte, len(data))
	}
	into = into[:len(data)]
	for i, char := range data {
		into[i] = lowerOf[char]
	}
	return into
}
