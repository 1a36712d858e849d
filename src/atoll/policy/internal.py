"""Names that nobody outside has: of this host, and of the other sandboxes of a team."""

from __future__ import annotations

import msgspec

from atoll.policy.hosts import plain_pattern
from atoll.types import HOST_NAME, EgressPolicy, Policy, Rule
from atoll.types.internal import SANDBOX_DOMAIN


def is_internal(name: str | None) -> bool:
    """Whether a plain name is the host's or another sandbox's. No nameserver sees it, no ``*`` opens it."""
    return name is not None and (name == HOST_NAME or sandbox_ref(name) is not None)


def sandbox_ref(name: str) -> str | None:
    """Return the name or id of the sandbox that a plain name is of; None if it is of none."""
    ref, dot, domain = name.partition(".")
    return ref if dot and domain == SANDBOX_DOMAIN else None


def without_own(network: EgressPolicy) -> EgressPolicy:
    """Return a policy as another team may inherit it: its rules open none of that team's sandboxes and secrets."""
    if not isinstance(network, Policy):
        return network
    return msgspec.structs.replace(
        network, rules=tuple(kept for rule in network.rules if (kept := _without_own(rule)) is not None)
    )


def _without_own(rule: Rule) -> Rule | None:
    if not rule.may_pass:
        return rule
    if rule.inject:
        return None
    hosts = tuple(host for host in rule.hosts if sandbox_ref(plain_pattern(host) or "") is None)
    if len(hosts) == len(rule.hosts):
        return rule
    # Without a host it would be about every one.
    return msgspec.structs.replace(rule, hosts=hosts) if hosts else None
