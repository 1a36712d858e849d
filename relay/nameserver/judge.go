package nameserver

import (
	"net/netip"

	"atoll/policy"
)

// Judge decides which names exist for a guest. It is asked from several goroutines at once.
type Judge interface {
	// Needed tells whether the guest has rules. Without them its questions are passed on as they are, but for the name of the
	// gateway of models, which nobody outside has.
	Needed() bool
	// Name decides whether the guest may know that a name exists. The text is the name as it was asked for, without its last
	// dot; bytes that are not printable are in it as \DDD.
	Name(text string) policy.Admission
	// MayResolve tells whether the host may ask for a plain name, which no proxy resolves.
	MayResolve(name string) bool
	// MayLeadTo tells whether some port at this address may be reached under this name.
	MayLeadTo(name string, address netip.Addr) bool
	// Closed says what an address is that is not public, such as "private"; it is empty for a public one.
	Closed(address netip.Addr) string
	// Note tells of a refusal. The kind is that of the records that were asked for: "A", "TXT".
	Note(verdict policy.Admission, name, kind string)
	// Unplug cuts the guest off. It must not wait for the nameserver to be closed, which waits for it.
	Unplug(reason string)
}
