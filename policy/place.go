package policy

import (
	"encoding/json"
	"errors"
	"slices"
	"strconv"
	"strings"
)

// find walks a dotted path. The second result is false when a key is there in another case only, so that servers may
// disagree on whether it is there.
func (n *node) find(path string) (*node, bool) {
	current := n
	for step := range strings.SplitSeq(path, ".") {
		if current == nil {
			return nil, true
		}
		var clear bool
		if current, clear = current.child(step); !clear {
			return nil, false
		}
	}
	return current, true
}

func (n *node) child(step string) (*node, bool) {
	switch n.kind {
	case kindObject:
		for i, key := range n.keys {
			if key == step {
				return n.children[i], true
			}
		}
		return nil, !slices.ContainsFunc(n.keys, func(key string) bool { return foldKey(key) == foldKey(step) })
	case kindArray:
		if index, err := strconv.Atoi(step); err == nil && index >= 0 && index < len(n.children) {
			return n.children[index], true
		}
	}
	return nil, true
}

// judge tells whether the value at a path is a string, number or bool that one of the globs matches.
func (n *node) judge(path string, globs []glob) tri {
	found, clear := n.find(path)
	switch {
	case !clear:
		return unclear
	case found == nil:
		return no
	case found.kind != kindText && found.kind != kindNumber && found.kind != kindBool:
		return unclear
	case anyMatches(globs, found.text):
		return yes
	}
	return no
}

var errNoPlace = errors.New("the body has no place for it")

// SetText replaces the value at a dotted path of a JSON body by a text. All other bytes stay.
func SetText(body []byte, path, text string) ([]byte, error) {
	root, err := parseDocument(body)
	if err != nil {
		return nil, err
	}
	value, err := json.Marshal(text)
	if err != nil {
		return nil, err
	}
	current, steps := root, strings.Split(path, ".")
	for i, step := range steps {
		next, clear := current.child(step)
		if !clear {
			return nil, errNoPlace
		}
		if next == nil {
			return insertMember(body, current, steps[i:], value)
		}
		current = next
	}
	return slices.Concat(body[:current.start], value, body[current.end:]), nil
}

// insertMember adds a member to an object, with objects around it for the steps that are missing.
func insertMember(body []byte, into *node, steps []string, value []byte) ([]byte, error) {
	if into.kind != kindObject {
		return nil, errNoPlace
	}
	for _, step := range slices.Backward(steps) {
		if _, err := strconv.Atoi(step); err == nil {
			return nil, errNoPlace
		}
		key, err := json.Marshal(step)
		if err != nil {
			return nil, err
		}
		value = slices.Concat(key, []byte(":"), value)
		value = slices.Concat([]byte("{"), value, []byte("}"))
	}
	member := value[1 : len(value)-1]
	if len(into.keys) > 0 {
		member = slices.Concat([]byte(","), member)
	}
	return slices.Concat(body[:into.end-1], member, body[into.end-1:]), nil
}
