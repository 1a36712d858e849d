package home

import (
	"net/netip"

	"atoll/policy"
	"atoll/relay/guest"
	"atoll/relay/nameserver"
)

// judge decides which names exist for a guest, by the same rules as its connections.
type judge struct{ *Link }

var _ nameserver.Judge = judge{}

// Needed tells whether the guest has rules.
func (j judge) Needed() bool { return j.egress.Bounds().Own != nil }

// Name decides whether the guest may know that a name exists. A canary in it cuts the guest off.
func (j judge) Name(text string) policy.Admission {
	if j.canaries.Load().InName(text) {
		return policy.Admission{Action: policy.Unplug, Reason: "a canary appeared in a name that was asked for"}
	}
	if policy.PlainHost(text) == policy.ModelsName && j.egress.HasModels() {
		return policy.Admission{Action: policy.Allow}
	}
	return j.egress.Bounds().Name(text)
}

// MayResolve tells whether the host may ask for a plain name, which no proxy resolves.
func (j judge) MayResolve(name string) bool { return !j.egress.Bounds().Proxied(name) }

// MayLeadTo tells whether some port at this address may be reached under this name.
func (j judge) MayLeadTo(name string, address netip.Addr) bool {
	return j.egress.Bounds().LeadsTo(name, address)
}

// Closed says what an address is that is not public.
func (j judge) Closed(address netip.Addr) string { return policy.WhyClosed(policy.Plain(address)) }

// Note tells of a refusal.
func (j judge) Note(verdict policy.Admission, name, kind string) {
	// Without rules, only refusals count.
	if verdict.Action == policy.Allow && !j.Needed() {
		return
	}
	j.Tell(guest.Told{Host: name, Scheme: "dns", Method: kind, Admission: verdict})
}
