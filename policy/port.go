package policy

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

const portLast = 65535

type portRange struct{ first, last int }

// A rule about requests that names no ports is about those of the web.
var (
	everyPort = []portRange{{1, portLast}}
	webPorts  = []portRange{{80, 80}, {443, 443}}
)

// parsePorts reads ports such as 443 and "8000-8100", in order. Those that meet become one range.
func parsePorts(texts []json.RawMessage) ([]portRange, error) {
	ranges := make([]portRange, len(texts))
	for i, text := range texts {
		first, last, isRange := strings.Cut(strings.Trim(string(text), `"`), "-")
		if !isRange {
			last = first
		}
		low, high := parsePort(first), parsePort(last)
		if low < 1 || high < low || high > portLast {
			return nil, fmt.Errorf("%s is not a port or a range of ports", text)
		}
		ranges[i] = portRange{low, high}
	}
	slices.SortFunc(ranges, func(one, other portRange) int { return cmp.Compare(one.first, other.first) })
	merged := ranges[:0]
	for _, each := range ranges {
		if at := len(merged) - 1; at >= 0 && each.first <= merged[at].last+1 {
			merged[at].last = max(merged[at].last, each.last)
		} else {
			merged = append(merged, each)
		}
	}
	return merged, nil
}

// parsePort gives 0 for what is no number of at most five digits.
func parsePort(text string) int {
	if len(text) > 5 || strings.ContainsFunc(text, func(char rune) bool { return char < '0' || char > '9' }) {
		return 0
	}
	port, _ := strconv.Atoi(text)
	return port
}

func anyHas(ranges []portRange, port int) bool {
	_, found := slices.BinarySearchFunc(ranges, port, func(each portRange, port int) int {
		switch {
		case each.last < port:
			return -1
		case each.first > port:
			return 1
		}
		return 0
	})
	return found
}
