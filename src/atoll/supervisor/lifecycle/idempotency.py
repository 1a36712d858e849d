"""Requests for sandboxes that name themselves by a key: a repeated one gets the sandbox of the first."""

from __future__ import annotations

import asyncio
import hashlib
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import msgspec

from atoll.errors import InvalidSpecError
from atoll.supervisor.state.rows import Idempotency

if TYPE_CHECKING:
    from atoll.supervisor.state.inventory import Inventory
    from atoll.supervisor.state.sandbox import Sandbox
    from atoll.types import SandboxSpec

_Name = tuple[str | None, str]


def idempotency_of(spec: SandboxSpec) -> Idempotency | None:
    """The key of a request, and a digest of the original request; None without a key."""
    if spec.idempotency_key is None:
        return None
    text = msgspec.json.encode(spec, order="deterministic")
    return Idempotency(key=spec.idempotency_key, digest=hashlib.sha256(text).hexdigest())


@dataclass(eq=False, repr=False)
class KeyedRequests:
    """Makes requests with the same key wait for each other, and finds the sandbox of an earlier one."""

    inventory: Inventory
    _locks: dict[_Name, asyncio.Lock] = field(default_factory=dict, init=False)
    _users: Counter[_Name] = field(default_factory=Counter, init=False)

    @asynccontextmanager
    async def turn(self, spec: SandboxSpec) -> AsyncIterator[Sandbox | None]:
        """Give the sandbox that an earlier request with the spec's key made, or None. The caller makes it then.

        No other request with this key has a turn meanwhile.

        Raises:
            InvalidSpecError: A request with another spec had the key.
        """
        asked = idempotency_of(spec)
        if asked is None:
            yield None
            return
        name = spec.team, asked.key
        lock = self._locks.setdefault(name, asyncio.Lock())
        self._users[name] += 1
        try:
            async with lock:
                yield await self._earlier(spec.team, asked)
        finally:
            self._users[name] -= 1
            if not self._users[name]:
                del self._users[name], self._locks[name]

    async def _earlier(self, team: str | None, asked: Idempotency) -> Sandbox | None:
        for sandbox in self.inventory.sandboxes():
            had = sandbox.row.idempotency
            if had is None or had.key != asked.key or sandbox.row.team != team:
                continue
            async with sandbox.lock:  # it may be about to be killed, for a client that left
                if sandbox.row.state == "killed":
                    continue
            if had.digest != asked.digest:
                raise InvalidSpecError(
                    f"the idempotency_key {asked.key!r} belongs to another request, of sandbox "
                    f"{sandbox.sandbox_id}",
                    hint="repeat the same request, or take another key",
                    sandbox_id=sandbox.sandbox_id,
                )
            return sandbox
        return None
