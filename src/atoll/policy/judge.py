"""Decides about connections by name, address and port, on the wire. Nothing else decides there.

`policy/connection.go` decides the same about connections that are only asked about.

Rules about requests are decided by the edge, which gets the numbers of the rules that a connection's
destination matches.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from atoll.policy.hosts import plain_host
from atoll.policy.internal import is_internal
from atoll.policy.masks import Mask, Names, RuleIndex, mask_of, members
from atoll.policy.ports import LAST_PORT
from atoll.policy.proxies import is_loopback_name, local_name, proxied
from atoll.policy.ranges import closed, plain
from atoll.types import HOST_NAME, Policy


@dataclass(frozen=True, slots=True)
class Verdict:
    """What happens to a connection.

    Args:
        action: ``inspect`` hands it to the edge, which judges each request by the rules ``kept``.
        rule: The index of the rule that decides; None if no rule matches.
        kept: Indices of the rules that the destination matches, in order, for the edge.
        reason: Why it is denied, as text for people; empty if it is not.
        observed: The policy only observes: it would have been denied.
        ceiling: The ceiling of the sandbox's team decides, and ``rule`` is one of it.
        above: Indices of the ceiling's rules that the destination matches, in order, for the edge.
    """

    action: Literal["allow", "deny", "unplug", "inspect"]
    rule: int | None = None
    kept: tuple[int, ...] = ()
    reason: str = ""
    observed: bool = False
    ceiling: bool = False
    above: tuple[int, ...] = ()

    @property
    def deciding(self) -> tuple[int, ...]:
        """Indices of the rules by which a connection with this verdict is judged."""
        return self.kept or (() if self.rule is None else (self.rule,))


class Judge:
    """A policy, ready to decide. Use ``check_policy`` first.

    Args:
        policy: The policy to decide by.
    """

    def __init__(self, policy: Policy) -> None:
        self.policy = policy
        self._observes = policy.mode == "observe"
        self._index = index = RuleIndex(policy.rules)
        self._passed = Names()
        for pattern in policy.passthrough:
            self._passed.add(pattern, 1)
        # Rules that refuse whatever connection they match.
        self._shuts = index.at_every_port & ~index.allows & ~index.inspects
        self._only_ranges = index.unnamed & ~index.anywhere
        self._denies = mask_of(rule.action == "deny" for rule in policy.rules)

    def name(self, name: str) -> Verdict:
        """Decide about a name before it is resolved: ``allow`` if some port of it may be reached.

        Otherwise nothing may be asked about it outside, because a name carries data. For the same reason a
        rule that has only ranges of addresses does not make every name known.
        """
        text = plain_host(name)
        if text is None:
            return Verdict("deny", reason=f"{name[:80]!r} is no host name")
        index = self._index
        named = index.named(text)
        hard = _shut(text) if is_internal(text) else ""
        if self.proxied(text):
            why_local = local_name(text)
            named = index.unresolved(text, local=why_local is not None)
            hard = f"{text} is {why_local}" if why_local else ""
        shuts = self._shuts & index.anywhere
        leading = _until(named, shuts)
        allowing = leading & index.allows
        if allowing & ~self._only_ranges or (allowing and self._observes):
            return Verdict("allow")
        if allowing:
            return Verdict("deny", reason=f"no rule allows {text}")
        return self._verdict(leading & shuts, text, hard=hard)

    def knows_name(self, name: str) -> bool:
        """Whether a guest may resolve this name: some port of it may be reached, or going there unplugs."""
        return self.name(name).action != "deny"

    def knows_address(self, name: str, address: str) -> bool:
        """Whether any port may be reached at this address under this name, or going there unplugs."""
        text = plain_host(name)
        parsed = plain(address)
        is_closed = closed(parsed) is not None
        if text is None:
            return False
        found = self._index.named(text) & self._index.at_address(parsed, closed=is_closed)
        return (self._observes and not is_closed) or bool(_until(found, self._shuts) & ~self._denies)

    def looks_into(self, name: str) -> bool:
        """Whether a connection to this plain name must show that it asks for that name, and no other one."""
        return not self._observes and not is_internal(name) and not self._passed.of(name)

    def proxied(self, name: str | None) -> bool:
        """Whether a proxy connects to this plain name; None is an address for which there is no name."""
        return proxied(self.policy.proxy, name)

    def connection(self, name: str | None, address: str | None, port: int) -> Verdict:
        """Decide about a connection.

        Args:
            name: The name that the guest asked for; None if it gave an address.
            address: What the name was resolved to, or the address that the guest gave. None if a proxy
                resolves the name.
            port: The port of the destination.
        """
        if not 0 < port <= LAST_PORT:
            return Verdict("deny", reason=f"{port} is not a port")
        text = None if name is None else plain_host(name)
        if name is not None and text is None:
            return Verdict("deny", reason=f"{name[:80]!r} is no host name")
        if address is None:
            return self._unresolved(text or "", port)
        try:
            parsed = plain(address)
        except ValueError:
            return Verdict("deny", reason=f"{address[:80]!r} is no address to connect to")
        if is_internal(text) and not parsed.is_loopback:
            return Verdict("deny", reason=f"{address} is no address of {text}")
        why_closed = closed(parsed)
        is_open = why_closed is None or is_internal(text)
        index = self._index
        found = index.named(text) & index.at_ports(port, port) & index.at_address(parsed, closed=not is_open)
        if text is not None and self._passed.of(text):
            found &= ~index.inspects
        # Who asks by name is not told the address: the names of the host's network would tell its layout.
        place = address if text is None else f"{text} leads to an address that"
        hard = f"{place} is {why_closed}" if why_closed else ""
        return self._verdict(_until(found, ~index.inspects), f"{text or address}:{port}", hard=hard)

    def _unresolved(self, name: str, port: int) -> Verdict:
        if is_loopback_name(name):
            return Verdict("deny", reason=f"{name} is the proxy's own computer")
        why_local = local_name(name)
        index = self._index
        found = index.unresolved(name, local=why_local is not None) & index.at_ports(port, port)
        if self._passed.of(name):
            found &= ~index.inspects
        hard = f"{name} is {why_local}" if why_local else ""
        return self._verdict(_until(found, ~index.inspects), f"{name}:{port}", hard=hard)

    def _verdict(self, kept: Mask, destination: str, *, hard: str) -> Verdict:
        """Decide by the rules that match. ``hard`` says why nobody gets there whom no rule allows to."""
        first = (kept & -kept).bit_length() - 1
        if self._observes and hard and not kept & self._index.allows:
            return Verdict("deny", first if kept else None, reason=hard)
        if not kept:
            return self._refused(None, hard or f"no rule allows {destination}")
        if self._index.inspects >> first & 1:
            return Verdict("inspect", kept=tuple(members(kept)))
        action = self.policy.rules[first].action
        if action == "allow":
            return Verdict("allow", first)
        does = "denies" if action == "deny" else "unplugs at"
        reason = f"{rule_name(self.policy, first)} {does} {destination}"
        if action == "unplug" and not self._observes:
            return Verdict("unplug", first, reason=reason)
        return self._refused(first, hard or reason)

    def _refused(self, rule: int | None, reason: str) -> Verdict:
        return Verdict("allow" if self._observes else "deny", rule, reason=reason, observed=self._observes)


def _shut(name: str) -> str:
    """Why an internal name is unknown that no rule has."""
    return f"no rule exposes a port of {'this host' if name == HOST_NAME else name}"


def _until(found: Mask, ends: Mask) -> Mask:
    """Return the rules of a set up to its first one that ends the search, which is the last one in it."""
    ending = found & ends
    if not ending:
        return found
    lowest = ending & -ending
    return found & (lowest | (lowest - 1))


def rule_name(policy: Policy, number: int) -> str:
    """What people call a rule: its name, or its number counted from 1."""
    name = policy.rules[number].name
    return f"rule {number + 1} ({name})" if name else f"rule {number + 1}"
