"""Keeps warm machines: booted, with a ready agent, waiting to become sandboxes."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from atoll.errors import AtollError
from atoll.host import to_the_end

if TYPE_CHECKING:
    from atoll.supervisor.lifecycle.warm_machine import Warm, WarmMachines
    from atoll.supervisor.machines.prestarted import PrestartedMachines
    from atoll.supervisor.state.tasks import Tasks
    from atoll.types import HostMemory

# The refill uses a processor for a moment. The first command of the new sandbox comes first.
_REFILL_PAUSE_S = 0.1
_LOOK_S = 10.0
_IMAGES_MOST = 4
_log = logging.getLogger(__name__)


def missing(size: int, warm: int, making: int) -> int:
    """How many machines to make for an image that has ``warm`` ready and ``making`` in progress."""
    return max(0, size - warm - making)


@dataclass(kw_only=True, eq=False, repr=False)
class WarmPool:
    """Keeps ``size`` warm machines with default limits for each of the four images used last.

    Args:
        size: Machines for each image; 0 keeps none.
        memory: Reports the host's memory.
    """

    machines: WarmMachines
    prestarted_machines: PrestartedMachines
    tasks: Tasks
    size: int
    memory: Callable[[], HostMemory]
    _warm: dict[str, list[Warm]] = field(default_factory=dict, init=False)
    _making: dict[str, int] = field(default_factory=dict, init=False)
    _used: dict[str, None] = field(default_factory=dict, init=False)
    _made: asyncio.Event = field(default_factory=asyncio.Event, init=False)
    _closed: bool = field(default=False, init=False)

    def start(self) -> None:
        """Start to watch the host's memory."""
        self.tasks.watch(self._looking())

    def ids(self) -> set[str]:
        """The sandbox ids that are reserved for warm machines."""
        return {warm.sandbox_id for each in list(self._warm.values()) for warm in list(each)}

    async def take(self, digest: str) -> Warm | None:
        """Remove a warm machine of that image from the pool and return it, or return None."""
        ready = self._warm.get(digest, [])
        while ready:
            warm = ready.pop(0)
            if self.machines.is_usable(warm):
                return warm
            await self.discard(warm)
        return None

    def refill(self, digest: str) -> None:
        """Start to make the machines that a used image lacks.

        The image used longest ago loses its machines.
        """
        self._used.pop(digest, None)
        self._used[digest] = None
        while len(self._used) > _IMAGES_MOST:
            oldest = next(iter(self._used))
            del self._used[oldest]
            self.tasks.spawn(self.forget(oldest))
        self._fill(digest)

    def _fill(self, digest: str) -> None:
        for _ in range(self._missing(digest)):
            self._making[digest] = self._making.get(digest, 0) + 1
            self.tasks.watch(self._make_soon(digest))

    async def discard(self, warm: Warm) -> None:
        """End a warm machine and erase its disk."""
        await self.machines.discard(warm)

    async def drain(self) -> None:
        """End all warm machines."""
        for ready in list(self._warm.values()):
            while ready:
                await self.discard(ready.pop())

    async def forget(self, digest: str) -> None:
        """End the warm machines of an image, also unfinished ones.

        The pool makes no further ones until the image is used again.
        """
        self._used.pop(digest, None)
        while self._making.get(digest):
            self._made.clear()
            await self._made.wait()
        for warm in self._warm.pop(digest, []):
            await self.discard(warm)

    async def aclose(self) -> None:
        """End all warm machines, and make no further ones."""
        self._closed = True
        await self.drain()

    def _missing(self, digest: str) -> int:
        if self._closed:
            return 0
        return missing(self.size, len(self._warm.get(digest, ())), self._making.get(digest, 0))

    async def _make_soon(self, digest: str) -> None:
        try:
            await asyncio.sleep(_REFILL_PAUSE_S)
            # Check no earlier: the caller that has just taken a machine would wait for it.
            if self.memory().spare_bytes < 0:
                return
            warm = await self.machines.make(digest)
            if self._closed:
                await to_the_end(self.discard(warm))
            else:
                self._warm.setdefault(digest, []).append(warm)
        except (AtollError, OSError) as error:
            _log.warning("cannot fill the pool: %s", error)
        finally:
            self._making[digest] -= 1
            if not self._making[digest]:
                del self._making[digest]
            self._made.set()

    async def _looking(self) -> None:
        while True:
            await asyncio.sleep(_LOOK_S)
            try:
                await self.look_after_memory()
            except (AtollError, OSError) as error:
                _log.warning("cannot maintain the pool: %s", error)

    async def look_after_memory(self) -> None:
        """End all warm machines while the host's memory is short; otherwise make the missing machines."""
        if self.memory().spare_bytes < 0:
            await self.drain()
            await self.prestarted_machines.drain()
        else:
            for digest in self._warm.keys() & self._used.keys():
                self._fill(digest)
