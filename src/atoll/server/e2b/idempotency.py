"""Repeated requests: the same key and the same request make one sandbox, however often they come."""

from __future__ import annotations

import asyncio
import re
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from atoll.server.e2b.answers import Refusal
from atoll.server.e2b.wire import Sandbox

_KEY = re.compile(r"[a-z0-9-]{1,255}")
KEEP_S = 86_400.0
_MOST = 10_000


@dataclass(frozen=True)
class _Made:
    fingerprint: str
    task: asyncio.Task[Sandbox]
    at_s: float


class Idempotency:
    """Remembers the results of requests with a key: for a day, and the newest ten thousand.

    Args:
        clock: Returns monotonic seconds.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._made: OrderedDict[tuple[str, str], _Made] = OrderedDict()

    async def once(
        self, team: str, key: str, fingerprint: str, make: Callable[[], Awaitable[Sandbox]]
    ) -> Sandbox:
        """Return the result of ``make``, or of an earlier request with the key. A running one is waited for.

        A request that failed is forgotten, so that the next one tries again.

        Raises:
            Refusal: ``key`` is not a valid key (400), or an earlier request with it asked for something else
                (422).
        """
        if not _KEY.fullmatch(key):
            raise Refusal(400, "Idempotency-Key must be 1 to 255 lowercase letters, digits and hyphens")
        self._forget()
        made = self._made.get((team, key))
        if made is None:
            task = asyncio.ensure_future(make())
            made = self._made[team, key] = _Made(fingerprint, task, self._clock())
            task.add_done_callback(lambda done: self._drop_failed((team, key), done))
        if made.fingerprint != fingerprint:
            raise Refusal(422, "this Idempotency-Key was used with another request")
        # a client that hangs up must not undo a request that others wait for
        return await asyncio.shield(made.task)

    def _drop_failed(self, key: tuple[str, str], task: asyncio.Task[Sandbox]) -> None:
        if task.cancelled() or task.exception() is not None:
            self._made.pop(key, None)

    def _forget(self) -> None:
        oldest_s = self._clock() - KEEP_S
        while self._made:
            key, made = next(iter(self._made.items()))
            if len(self._made) <= _MOST and made.at_s > oldest_s:
                return
            if not made.task.done():
                return
            del self._made[key]
