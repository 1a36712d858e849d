package guest

import (
	"atoll/policy"
	"atoll/relay/splice"
)

// lookInto tells what becomes of a connection to a name that begins like this.
func lookInto(first []byte, name string) splice.Look {
	begins := policy.ReadFirstBytes(first)
	if begins.Kind == policy.BeginsUnclear {
		return splice.Look{Wanted: begins.Wanted, SendOn: begins.SendOn}
	}
	return splice.Look{Passage: begins.Passage(name)}
}
