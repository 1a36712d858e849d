package policy

import "slices"

// Kept are the rules that fit a destination, in their order.
type Kept struct {
	Rules []*Rule
	// Of each rule, side by side: of a thousand rules only a few are looked at more closely.
	screens []screen
}

// Keep makes them ready to judge by.
func Keep(rules []*Rule) Kept {
	kept := Kept{Rules: rules, screens: make([]screen, len(rules))}
	for i, each := range rules {
		kept.screens[i] = newScreen(each.Methods, each.paths)
		kept.screens[i].lowers = each.Action != Allow
	}
	return kept
}

// screen has the parts of a rule's conditions that can be compared at once.
type screen struct {
	methods uint32 // a bit for each known method; all bits: any
	length  int    // of the text that all paths begin with
	hash    uint64
	lowers  bool // the paths are compared in lower case
}

var knownMethods = []string{"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "PROPFIND"}

const prefixMost = 128

func methodBit(method string) uint32 {
	if at := slices.Index(knownMethods, method); at >= 0 {
		return 1 << at
	}
	return 1 << len(knownMethods)
}

func newScreen(methods []string, paths []glob) screen {
	made := screen{}
	for _, each := range methods {
		made.methods |= methodBit(each)
	}
	if len(methods) == 0 {
		made.methods = ^uint32(0)
	}
	if len(paths) == 0 {
		return made
	}
	shared := paths[0].prefix
	for _, each := range paths[1:] {
		same := 0
		for same < min(len(shared), len(each.prefix)) && shared[same] == each.prefix[same] {
			same++
		}
		shared = shared[:same]
	}
	shared = shared[:min(len(shared), prefixMost)]
	made.length = len(shared)
	for i := range len(shared) {
		made.hash = mix(made.hash, shared[i])
	}
	return made
}

func mix(hash uint64, char byte) uint64 {
	return (hash ^ uint64(char) + 0x9e3779b97f4a7c15) * 1099511628211
}

// sieve compares one request with screens.
type sieve struct {
	method uint32
	// Of the beginnings of the path, as it is and in lower case; nil: there are several views, so paths are not compared here.
	hashes, lowered []uint64
}

func newSieve(request *Request) sieve {
	made := sieve{method: methodBit(request.Method)}
	if len(request.Path.Views) != 1 || request.Path.unclear {
		return made
	}
	view := request.Path.Views[0]
	made.hashes = make([]uint64, min(len(view), prefixMost)+1)
	made.lowered = make([]uint64, len(made.hashes))
	for i := range len(made.hashes) - 1 {
		made.hashes[i+1] = mix(made.hashes[i], view[i])
		made.lowered[i+1] = mix(made.lowered[i], lowerByte(view[i]))
	}
	return made
}

// rejects tells whether a condition of the rule certainly does not hold.
func (s *sieve) rejects(of *screen) bool {
	if of.methods&s.method == 0 {
		return true
	}
	hashes := s.hashes
	if of.lowers {
		hashes = s.lowered
	}
	return hashes != nil && (of.length >= len(hashes) || hashes[of.length] != of.hash)
}
