package search

import (
	"regexp/syntax"
	"slices"
)

const (
	statesMost = 500

	unknown = -1
	accept  = -2
	start   = 0
)

// automaton tells which lines an expression may match, at one look into a table for each byte.
//
// It says yes too often, never too seldom: conditions such as \b count as fulfilled, and it does not count the bytes of
// a character beyond ASCII. So it needs no states for these. Its table grows as it is used, so each worker has its own.
type automaton struct {
	program *syntax.Prog
	numbers map[string]int32
	sets    [][]uint32 // of the instructions that each state waits at
	next    [][256]int32
	marked  []bool
}

// newAutomaton returns none for an expression that matches the empty line.
func newAutomaton(program *syntax.Prog) *automaton {
	a := &automaton{program: program, numbers: map[string]int32{}, marked: make([]bool, len(program.Inst))}
	if a.state(nil) == accept {
		return nil
	}
	return a
}

// state finds the state that is reached at some instructions, or makes it. A match may begin anywhere.
func (a *automaton) state(at []uint32) int32 {
	set, matched := []uint32{}, false
	clear(a.marked)
	left := append(slices.Clone(at), uint32(a.program.Start))
	for len(left) > 0 {
		number := left[len(left)-1]
		left = left[:len(left)-1]
		if a.marked[number] {
			continue
		}
		a.marked[number] = true
		switch instruction := &a.program.Inst[number]; instruction.Op {
		case syntax.InstAlt, syntax.InstAltMatch:
			left = append(left, instruction.Out, instruction.Arg)
		case syntax.InstCapture, syntax.InstNop, syntax.InstEmptyWidth:
			left = append(left, instruction.Out)
		case syntax.InstMatch:
			matched = true
		case syntax.InstFail:
		default:
			set = append(set, number)
		}
	}
	if matched {
		return accept
	}
	slices.Sort(set)
	key := make([]byte, 0, 4*len(set))
	for _, number := range set {
		key = append(key, byte(number), byte(number>>8), byte(number>>16), byte(number>>24))
	}
	if state, known := a.numbers[string(key)]; known {
		return state
	}
	return a.add(string(key), set)
}

func (a *automaton) add(key string, set []uint32) int32 {
	state := int32(len(a.sets))
	a.numbers[key] = state
	a.sets = append(a.sets, set)
	var row [256]int32
	for i := range row {
		row[i] = unknown
	}
	a.next = append(a.next, row)
	return state
}

// step computes what follows a state at a byte, and remembers it.
func (a *automaton) step(from int32, char byte) int32 {
	var reached []uint32
	for _, number := range a.sets[from] {
		instruction := &a.program.Inst[number]
		if char < 0x80 {
			if instruction.MatchRune(rune(char)) {
				reached = append(reached, instruction.Out)
			}
		} else if beyondASCII(instruction) {
			reached = append(reached, number, instruction.Out)
		}
	}
	to := a.state(reached)
	a.next[from][char] = to
	return to
}

func beyondASCII(instruction *syntax.Inst) bool {
	// Some letters have another case beyond ASCII.
	folded := syntax.Flags(instruction.Arg)&syntax.FoldCase != 0
	last := len(instruction.Rune) - 1
	return folded || last >= 0 && instruction.Rune[last] >= 0x80
}

// candidate returns a place in the next line that may match, from the start of a line on, or the end.
func (a *automaton) candidate(data []byte, from int) int {
	if len(a.sets) > statesMost {
		a.numbers, a.sets, a.next = map[string]int32{}, nil, nil
		a.state(nil)
	}
	state := int32(start)
	for at := from; at < len(data); at++ {
		char := data[at]
		if char == '\n' {
			state = start
			continue
		}
		to := a.next[state][char]
		if to == unknown {
			if len(a.sets) > statesMost {
				return at // who knows
			}
			to = a.step(state, char)
		}
		if to == accept {
			return at
		}
		state = to
	}
	return len(data)
}
