"""What one guest may reach. Its relay and its nameserver ask here, and nobody else decides."""

from __future__ import annotations

import socket
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

import msgspec

from atoll.network.names import NameTable, is_synthetic
from atoll.network.resolver import ResolveError, Resolver
from atoll.network.upstream import PROXY_TIMEOUT_S, connect_through
from atoll.policy import BoundedJudge, Canaries, Judge, Verdict, closed, is_internal, plain
from atoll.types import Action, EgressDecision, Policy, Scheme, UpstreamProxy

LOOPBACK = "127.0.0.1"
_NO_NAME = Verdict("deny", reason="the address stands for no name: resolve the name again")
_UNRESOLVED = Verdict("deny", reason="a proxy connected to it, and the policy has none for it now")
_ALLOWED = Verdict("allow")
_NOTHING = Judge(Policy())
_THIS_HOST = "this host, which only a rule for host.atoll.internal opens"


Reach = Callable[[str, int], Awaitable[socket.socket]]
"""Connects to a port of another sandbox, by its name or id. The caller owns the socket.

It raises PermissionError if there is none that the guest may reach, or not at this port, and OSError if nothing
answers.
"""


@dataclass(frozen=True, slots=True)
class Destination:
    """Where a guest wants to connect. ``name`` is None if it gave an address.

    ``address`` is what it dialled: one that stands for the name, or a real one.
    """

    name: str | None
    address: str
    port: int

    @property
    def host(self) -> str:
        """What to call it."""
        return self.name or self.address


@dataclass(frozen=True)
class Through:
    """A proxy, and the ceiling that must let the host connect to it."""

    proxy: UpstreamProxy
    ceiling: Policy | None = None


@dataclass(frozen=True)
class Outside:
    """What all guests of a home have in common on their way out.

    Args:
        resolver: Resolves names for the host's connections.
        is_own: Whether an address belongs to this host.
        proxy_timeout_s: How long an upstream proxy may take to connect.
    """

    resolver: Resolver
    is_own: Callable[[str], bool]
    proxy_timeout_s: float = PROXY_TIMEOUT_S

    def owns(self, address: str) -> bool:
        """Whether an address, or the IPv4 address that it carries, belongs to this host."""
        return self.is_own(str(plain(address)))


class Egress:
    """The egress of one guest: its policy, and the names that it knows. ``reach`` connects it to other sandboxes.

    Args:
        names: The guest's names.
        outside: What all guests have in common.
    """

    def __init__(self, names: NameTable, outside: Outside) -> None:
        self.names = names
        self._outside = outside
        self._judge: Judge | BoundedJudge | None = None
        self._proxy: Through | None = None
        self._is_cut = False
        self.canaries = Canaries()
        self.told: Callable[[EgressDecision], None] = _forget
        self.unplug: Callable[[str], None] = _forget
        self.reach: Reach = _no_sandbox

    @property
    def judge(self) -> Judge | BoundedJudge | None:
        """The rules; None lets the guest reach everything public."""
        return _NOTHING if self._is_cut else self._judge

    def set(self, policy: Policy | None, ceiling: Policy | None = None) -> None:
        """Decide by this policy from now on. None is everything public, without rules.

        Args:
            ceiling: What the policy cannot go beyond.
        """
        if ceiling is not None:
            self._judge = BoundedJudge(policy, ceiling)
        else:
            self._judge = None if policy is None else Judge(policy)
        proxy = policy.proxy if policy is not None else None
        # Without the names that it is for: a connection need not end because another name is added.
        self._proxy = (
            Through(msgspec.structs.replace(proxy, hosts=()), ceiling) if proxy is not None else None
        )

    def cut(self, is_cut: bool) -> None:
        """Allow nothing, whatever the policy says. False lets the policy decide again."""
        self._is_cut = is_cut

    def watch(self, told: Callable[[EgressDecision], None], unplug: Callable[[str], None]) -> None:
        """Call ``told`` with every decision, and ``unplug`` with the reason when a rule unplugs the guest."""
        self.told = told
        self.unplug = unplug

    def destination(self, address: str, port: int) -> Destination:
        """Return what the guest means by an address."""
        return Destination(self.names.name_at(address), address, port)

    def at_once(self, destination: Destination) -> Verdict | None:
        """Decide without waiting, where no name has to be resolved; None where one has."""
        if destination.name is None:
            return self._address(destination)
        return None

    def proxy_for(self, destination: Destination) -> Through | None:
        """Return the proxy through which a destination is reached; None if the host connects to it itself."""
        if self.judge is None or not self.judge.proxied(destination.name):
            return None
        return self._proxy

    async def connect_through(self, through: Through, destination: Destination) -> socket.socket:
        """Have a proxy connect to a destination. The caller owns the socket.

        Raises:
            ProxyError: It does not.
        """
        return await connect_through(
            through.proxy,
            destination.host,
            destination.port,
            resolver=self._outside.resolver,
            is_own=self._outside.owns,
            ceiling=self.judge.ceiling if isinstance(self.judge, BoundedJudge) else None,
            timeout_s=self._outside.proxy_timeout_s,
        )

    async def decide(self, destination: Destination) -> tuple[Verdict, str | None]:
        """Decide about a connection.

        The address is the one to connect to if it is not denied, and None if a proxy resolves the name.
        """
        verdict = self.at_once(destination)
        if verdict is not None:
            return verdict, destination.address
        name = destination.name or ""
        if self.judge is not None and self.judge.proxied(name):
            return self.judge.connection(name, None, destination.port), None
        if self.judge is None:  # the policy was changed since the name was asked for
            if is_internal(name):
                return Verdict("deny", reason=f"no rule exposes {name}"), destination.address
            return await self._public(name)
        if is_internal(name):
            return self.judge.connection(name, LOOPBACK, destination.port), LOOPBACK
        try:
            addresses = await self._outside.resolver.addresses(name)
        except ResolveError as error:
            return Verdict("deny", reason=str(error)), destination.address
        verdicts = [(self._of(name, address, destination.port), address) for address in addresses]
        return next((found for found in verdicts if found[0].action != "deny"), verdicts[0])

    def again(self, destination: Destination, address: str | None) -> Verdict:
        """Decide again about an open connection to an address, after the policy has changed."""
        if destination.name is None:
            return self._address(destination)
        if self.judge is not None and self.judge.proxied(destination.name):
            return self.judge.connection(destination.name, None, destination.port)
        if address is None:
            return _UNRESOLVED
        return self._of(destination.name, address, destination.port)

    def name(self, name: str) -> Verdict:
        """Decide whether the guest may know that a name exists. A canary in it unplugs the guest."""
        if self.canaries.in_name(name):
            return Verdict("unplug", reason="a canary appeared in a name that was asked for")
        return _ALLOWED if self.judge is None else self.judge.name(name)

    def may_lead_to(self, name: str, address: str) -> bool:
        """Whether some port at this address may be reached under this name."""
        if self.judge is None:
            return closed(plain(address)) is None
        return self.judge.knows_address(name, address)

    def may_resolve(self, name: str) -> bool:
        """Whether the host may ask for this plain name, which no proxy resolves."""
        return self.judge is None or not self.judge.proxied(name)

    def looks_into(self, name: str) -> bool:
        """Whether a connection to this plain name must show that it asks for that name."""
        return self.judge is not None and self.judge.looks_into(name)

    def note(self, verdict: Verdict, host: str, port: int, scheme: Scheme, *, method: str = "") -> None:
        """Tell a decision. What is to be inspected is decided later, and without rules only refusals count."""
        if verdict.action == "inspect" or (self.judge is None and verdict.action == "allow"):
            return
        action: Action = "deny" if verdict.observed else verdict.action
        self.told(
            EgressDecision(
                at=time.time(),
                action=action,
                rule=verdict.rule,
                host=host,
                port=port,
                scheme=scheme,
                method=method,
                reason=verdict.reason,
                observed=verdict.observed,
                ceiling=verdict.ceiling,
            )
        )

    def _address(self, destination: Destination) -> Verdict:
        if is_synthetic(destination.address) and self.judge is not None:
            return _NO_NAME
        if self.judge is None and not 0 < destination.port < 65_536:
            return Verdict("deny", reason=f"{destination.port} is not a port")
        return self._of(None, destination.address, destination.port)

    def _internet(self, address: str, name: str | None) -> Verdict:
        why = closed(plain(address))
        if why is None and self._outside.owns(address):
            why = _THIS_HOST
        return _ALLOWED if why is None else Verdict("deny", reason=f"{_place(address, name)} is {why}")

    async def _public(self, name: str) -> tuple[Verdict, str]:
        try:
            address = (await self._outside.resolver.addresses(name))[0]
        except ResolveError as error:
            return Verdict("deny", reason=str(error)), ""
        return self._internet(address, name), address

    def _of(self, name: str | None, address: str, port: int) -> Verdict:
        if self.judge is None:
            return self._internet(address, name)
        verdict = self.judge.connection(name, address, port)
        if verdict.action in ("deny", "unplug") or is_internal(name):
            return verdict
        if self._outside.owns(address):
            return Verdict("deny", verdict.rule, reason=f"{_place(address, name)} is {_THIS_HOST}")
        return verdict


def _place(address: str, name: str | None) -> str:
    """What a refusal calls an address. Who asked by name is not told it."""
    return address if name is None else f"{name} leads to an address that"


def _forget(_: object) -> None:
    return None


async def _no_sandbox(ref: str, port: int) -> socket.socket:
    raise PermissionError(f"port {port} of the sandbox {ref} is not reached from here")
