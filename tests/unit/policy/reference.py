"""Decides about connections by name, address and port, written for the tests alone.

`policy/connection.go` and `policy/decide.go` decide on the wire, and have to say the same, word for word.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from ipaddress import ip_address, ip_network
from typing import Literal

from atoll.policy import EVERYTHING, rule_name
from atoll.policy.hosts import matches_host, plain_host, plain_pattern
from atoll.policy.internal import is_internal
from atoll.policy.masks import Mask, Names, RuleIndex, mask_of, members
from atoll.policy.ports import LAST_PORT
from atoll.policy.proxies import is_loopback_name
from atoll.policy.ranges import Address, closed, plain
from atoll.types import HOST_NAME, Policy, UpstreamProxy

LOOPBACK = "127.0.0.1"


# Names that mean something in one network only. Who resolves them behind a proxy, does so in the proxy's network.
_LOCAL = ("corp", "home", "home.arpa", "internal", "intranet", "lan", "local", "localdomain", "private")


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


def proxied(proxy: UpstreamProxy | None, name: str | None) -> bool:
    """Whether a plain name, or an address for which there is none, is reached through a proxy."""
    if proxy is None or is_internal(name):
        return False
    if not proxy.hosts:
        return True
    return name is not None and any(matches_host(plain_pattern(one) or "", name) for one in proxy.hosts)


def local_name(name: str) -> str | None:
    """Return why a plain name may mean something else in each network; None if it does not."""
    if "." not in name:
        return "a name without a dot, which each network has its own of"
    if any(name.endswith(f".{suffix}") or name == suffix for suffix in _LOCAL):
        return "a name of local networks"
    return None


def specifically(names: Names, name: str) -> Mask:
    """The rules that have this plain name, or what it is below, and not just ``*``."""
    return names.exactly(name) | names._above(name)


class Rules(RuleIndex):
    """The rules of a policy by what they match, also for destinations."""

    def named(self, name: str | None) -> Mask:
        """The rules whose hosts have a plain name; None is a destination without a name."""
        if name is None:
            return self.unnamed
        found = self.unnamed | self._names.of(name)
        return self._only_exposing(found, name) if is_internal(name) else found

    def at_address(self, address: Address, *, closed: bool) -> Mask:
        """The rules whose ranges have an address. If that is ``closed``, only those that open it may allow it."""
        found = (self._closed if closed else self._public).around(address, address.max_prefixlen)
        return found | (self.anywhere & ~self.allows if closed else self.anywhere)

    def unresolved(self, name: str, *, local: bool) -> Mask:
        """The rules that decide about a plain name whose address is not known.

        It may lie in a range that a rule refuses, and no rule that opens a range opens it. If the name is
        ``local``, only rules that name it may allow it.
        """
        found = self.named(name) & (self.anywhere | ~self.allows)
        return found & (~self.allows | specifically(self._names, name)) if local else found


class Judge:
    """A policy, ready to decide. Use ``check_policy`` first.

    Args:
        policy: The policy to decide by.
    """

    def __init__(self, policy: Policy) -> None:
        self.policy = policy
        self._observes = policy.mode == "observe"
        self._index = index = Rules(policy.rules)
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


class BoundedJudge:
    """A policy under a ceiling, ready to decide. ``ceiling`` decides for itself alone.

    Args:
        policy: The sandbox's own policy; None is everything public.
        ceiling: The ceiling. Use ``check_ceiling`` first.
    """

    def __init__(self, policy: Policy | None, ceiling: Policy) -> None:
        self._own = Judge(EVERYTHING if policy is None else policy)
        self.ceiling = Judge(ceiling)

    def name(self, name: str) -> Verdict:
        """See ``Judge``: a name that either of them denies is not resolved."""
        return _both(self._own.name(name), self.ceiling.name(name))

    def knows_address(self, name: str, address: str) -> bool:
        """See ``Judge``."""
        return self._own.knows_address(name, address) and self.ceiling.knows_address(name, address)

    def proxied(self, name: str | None) -> bool:
        """See ``Judge``: only a policy has a proxy."""
        return self._own.proxied(name)

    def looks_into(self, name: str) -> bool:
        """See ``Judge``: what one of them passes through, the other may still want to look into."""
        return self._own.looks_into(name) or self.ceiling.looks_into(name)

    def connection(self, name: str | None, address: str | None, port: int) -> Verdict:
        """See ``Judge``: it is inspected if one of them wants that."""
        return _both(self._own.connection(name, address, port), self.ceiling.connection(name, address, port))


def _both(own: Verdict, ceiling: Verdict) -> Verdict:
    if own.action == "unplug":
        return own
    if ceiling.action == "unplug" or (ceiling.action == "deny" and own.action != "deny"):
        return replace(ceiling, ceiling=True, reason=f"the team's ceiling: {ceiling.reason}")
    if own.action == "deny":
        return own
    above = ceiling.deciding
    if "inspect" in (own.action, ceiling.action):
        return Verdict("inspect", kept=own.deciding, above=above)
    return replace(own, above=above)


_ALLOWED = Verdict("allow")
_NO_NAME = Verdict("deny", reason="the address stands for no name: resolve the name again")
_THIS_HOST = "this host, which only a rule for host.atoll.internal opens"
_SYNTHETIC = ip_network("198.18.0.0/15")


def on_the_wire(
    policy: Policy | None,
    ceiling: Policy | None,
    name: str | None,
    addresses: Sequence[str],
    port: int,
    is_own: Callable[[str], bool],
) -> tuple[Verdict, str]:
    """Return what a guest gets that asks for a name, if it has one, and connects; and where it is connected to."""
    judge = None if policy is None else Judge(policy)
    both = judge if ceiling is None else BoundedJudge(policy, ceiling)
    if name is None:
        if both is not None and ip_address(addresses[0]) in _SYNTHETIC:
            return _NO_NAME, addresses[0]
        if both is None and not 0 < port < 65_536:
            return Verdict("deny", reason=f"{port} is not a port"), addresses[0]
        return _of(both, None, addresses[0], port, is_own), addresses[0]
    verdict = _ALLOWED if both is None else both.name(name)
    if verdict.action != "allow":
        return verdict, ""
    plain_name = plain_host(name)
    if both is not None and both.proxied(plain_name):
        return both.connection(plain_name, None, port), ""
    if both is None and is_internal(plain_name):
        return Verdict("deny", reason=f"no rule exposes {plain_name}"), addresses[0]
    if both is not None and is_internal(plain_name):
        return both.connection(plain_name, LOOPBACK, port), LOOPBACK
    verdicts = [(_of(both, plain_name, address, port, is_own), address) for address in addresses]
    return next((found for found in verdicts if found[0].action != "deny"), verdicts[0])


def _of(
    judge: Judge | BoundedJudge | None,
    name: str | None,
    address: str,
    port: int,
    is_own: Callable[[str], bool],
) -> Verdict:
    if judge is None:
        why = closed(plain(address))
        if why is None and is_own(str(plain(address))):
            why = _THIS_HOST
        return _ALLOWED if why is None else Verdict("deny", reason=f"{_place(address, name)} is {why}")
    verdict = judge.connection(name, address, port)
    if verdict.action in ("deny", "unplug") or is_internal(name) or not is_own(str(plain(address))):
        return verdict
    return Verdict("deny", verdict.rule, reason=f"{_place(address, name)} is {_THIS_HOST}")


def _place(address: str, name: str | None) -> str:
    """What a refusal calls an address. Who asked by name is not told it."""
    return address if name is None else f"{name} leads to an address that"
