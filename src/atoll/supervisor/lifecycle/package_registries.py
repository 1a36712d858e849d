"""The package registries that the policy ``packages`` allows."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable, Iterable, Mapping, Sequence

from atoll.types import EgressPolicy


class PackageRegistries:
    """Finds the hosts of package registries when a policy first needs them, and remembers them.

    Args:
        look: Returns the hosts, by the client on this host that uses them. Takes seconds.
    """

    def __init__(self, look: Callable[[], Mapping[str, Sequence[str]]]) -> None:
        self._look = functools.cache(look)

    async def by_client(self) -> Mapping[str, Sequence[str]]:
        """Return the hosts by client. A client that names no registry has no hosts."""
        return await asyncio.to_thread(self._look)

    async def found_for(self, networks: Iterable[EgressPolicy | None]) -> None:
        """Find the hosts if a policy needs them, so that ``hosts_for`` need not take seconds for that."""
        if "packages" in networks:
            await self.by_client()

    def hosts_for(self, network: EgressPolicy) -> frozenset[str]:
        """Return the hosts that a policy needs to know."""
        if network != "packages":
            return frozenset()
        return frozenset(host for hosts in self._look().values() for host in hosts)
