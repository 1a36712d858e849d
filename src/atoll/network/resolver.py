"""Resolves names for connections that the host makes for guests."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

import dns.exception
import dns.flags
import dns.message
import dns.rcode
import dns.rdatatype

from atoll.network.dnsclient import Nameservers, ask_all, ask_by_datagram, ask_by_stream

_LEAST_TTL_S, _MOST_TTL_S = 1.0, 30.0
_MOST_CACHED = 4096
_PAYLOAD_BYTES = 1232


class ResolveError(OSError):
    """A name cannot be resolved. ``code`` is the DNS response code that says why."""

    def __init__(self, name: str, code: int) -> None:
        super().__init__(f"{name} cannot be resolved: {dns.rcode.to_text(dns.rcode.Rcode(code))}")
        self.code = code


class Resolver:
    """Asks the host's nameservers. It remembers answers for as long as they say, at most 30 seconds.

    Args:
        nameservers: Returns the addresses and ports to ask.
        clock: Returns seconds.
    """

    def __init__(self, nameservers: Nameservers, clock: Callable[[], float] = time.monotonic) -> None:
        self._nameservers = nameservers
        self._clock = clock
        self._cached: dict[str, tuple[float, list[str]]] = {}
        self._asking: dict[str, asyncio.Task[list[str]]] = {}

    async def addresses(self, name: str) -> list[str]:
        """Return the addresses of a name: of IPv4, or of IPv6 if it has none of IPv4. There is at least one.

        Raises:
            ResolveError: The name does not exist, has no address, or no nameserver answers.
        """
        until_s, known = self._cached.get(name, (0.0, []))
        if until_s > self._clock():
            return known
        task = self._asking.get(name)
        if task is None:
            task = asyncio.get_running_loop().create_task(self._resolve(name))
            self._asking[name] = task
            task.add_done_callback(lambda done: self._resolved(name, done))
        return await asyncio.shield(task)

    def forget(self) -> None:
        """Ask for every name again from now on."""
        self._cached.clear()

    async def message(self, name: str, kind: dns.rdatatype.RdataType) -> dns.message.Message:
        """Return the answer of a nameserver to a question that is made here, without what a guest may add.

        Raises:
            ResolveError: No nameserver answers, or the answer is invalid.
        """
        query = dns.message.make_query(name, kind, use_edns=0, payload=_PAYLOAD_BYTES)
        wire = query.to_wire()
        servers = self._nameservers()
        for ask in (ask_by_datagram, ask_by_stream):
            reply = await ask_all(wire, servers, ask)
            if reply is None:
                break
            try:
                answer = dns.message.from_wire(reply)
            except dns.exception.DNSException:
                break
            if not answer.flags & dns.flags.TC:
                return answer
        raise ResolveError(name, dns.rcode.SERVFAIL)

    async def _resolve(self, name: str) -> list[str]:
        for kind in (dns.rdatatype.A, dns.rdatatype.AAAA):
            answer = await self.message(name, kind)
            if answer.rcode() != dns.rcode.NOERROR:
                raise ResolveError(name, answer.rcode())
            found = [data for rrset in answer.answer if rrset.rdtype == kind for data in rrset]
            if found:
                ttl_s = min(rrset.ttl for rrset in answer.answer)
                self._remember(name, ttl_s, [data.address for data in found])
                return [data.address for data in found]
        raise ResolveError(name, dns.rcode.NOERROR)

    def _remember(self, name: str, ttl_s: float, addresses: list[str]) -> None:
        if len(self._cached) >= _MOST_CACHED:
            self._cached.clear()
        kept_s = min(max(ttl_s, _LEAST_TTL_S), _MOST_TTL_S)
        self._cached[name] = (self._clock() + kept_s, addresses)

    def _resolved(self, name: str, task: asyncio.Task[list[str]]) -> None:
        self._asking.pop(name, None)
        if not task.cancelled():
            task.exception()  # those who asked have it
