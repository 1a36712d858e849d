"""Keeps warm machines: booted, with a ready agent, waiting to become sandboxes."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from atoll.errors import AtollError
from atoll.host import Memory, read_memory, to_the_end
from atoll.supervisor.lifecycle.parts import Parts
from atoll.supervisor.machines.identity import pool_init
from atoll.supervisor.machines.limits import KEEP_FREE_PERCENT
from atoll.supervisor.machines.memory_pressure import under_pressure
from atoll.supervisor.machines.plans import RunPlan
from atoll.supervisor.machines.running_machine import RunningMachine
from atoll.supervisor.state.ids import new_id, new_machine_uid
from atoll.supervisor.state.paths import FIRST_DISK
from atoll.supervisor.state.rows import Versions
from atoll.supervisor.state.tasks import Tasks
from atoll.supervisor.storage.trash import erase

if TYPE_CHECKING:
    from atoll.network import Link

# The refill uses a processor for a moment. The first command of the new sandbox comes first.
_REFILL_PAUSE_S = 0.1
_LOOK_S = 10.0
_IMAGES_MOST = 4
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Warm:
    """A warm machine that belongs to no sandbox yet. The sandbox that takes it gets its id and disk."""

    sandbox_id: str
    machine_uid: str
    versions: Versions
    running: RunningMachine


def missing(size: int, warm: int, making: int) -> int:
    """How many machines to make for an image that has ``warm`` ready and ``making`` in progress."""
    return max(0, size - warm - making)


class WarmPool:
    """Keeps ``size`` warm machines with default limits for each of the four images used last.

    Args:
        parts: What machines are made of.
        tasks: Owner of the refilling.
        size: Machines for each image; 0 keeps none.
        memory: Reports the host's memory.
    """

    def __init__(
        self, parts: Parts, tasks: Tasks, size: int, memory: Callable[[], Memory] = read_memory
    ) -> None:
        self._parts = parts
        self._tasks = tasks
        self._size = size
        self._memory = memory
        self._warm: dict[str, list[Warm]] = {}
        self._making: dict[str, int] = {}
        self._used: dict[str, None] = {}
        self._made = asyncio.Event()
        self._closed = False

    def start(self) -> None:
        """Start to watch the host's memory."""
        self._tasks.watch(self._looking())

    def ids(self) -> set[str]:
        """The sandbox ids that are reserved for warm machines."""
        return {warm.sandbox_id for each in list(self._warm.values()) for warm in list(each)}

    async def take(self, digest: str) -> Warm | None:
        """Remove a warm machine of that image from the pool and return it, or return None."""
        ready = self._warm.get(digest, [])
        while ready:
            warm = ready.pop(0)
            if not warm.running.gone.is_set() and warm.versions == self._parts.programs.current:
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
            self._tasks.spawn(self.forget(oldest))
        self._fill(digest)

    def _fill(self, digest: str) -> None:
        for _ in range(self._missing(digest)):
            self._making[digest] = self._making.get(digest, 0) + 1
            self._tasks.watch(self._make_soon(digest))

    async def discard(self, warm: Warm) -> None:
        """End a warm machine and erase its disk."""
        with self._parts.registry.pins.during(warm.sandbox_id):
            await self._parts.running_machines.end(warm.running)
            await warm.running.link.aclose()
            await erase(self._parts.paths.sandbox(warm.sandbox_id))

    async def drain(self) -> None:
        """End all warm machines."""
        for ready in list(self._warm.values()):
            while ready:
                await self.discard(ready.pop())

    async def forget(self, digest: str) -> None:
        """End the warm machines of an image, also unfinished ones.

        No more are made until it is used again.
        """
        self._used.pop(digest, None)
        while self._making.get(digest):
            self._made.clear()
            await self._made.wait()
        for warm in self._warm.pop(digest, []):
            await self.discard(warm)

    async def aclose(self) -> None:
        """End all warm machines and make no more of them."""
        self._closed = True
        await self.drain()

    def _missing(self, digest: str) -> int:
        if self._closed:
            return 0
        return missing(self._size, len(self._warm.get(digest, ())), self._making.get(digest, 0))

    async def _make_soon(self, digest: str) -> None:
        try:
            await asyncio.sleep(_REFILL_PAUSE_S)
            # Not earlier: the caller that has just taken a machine would wait for this check.
            if under_pressure(self._memory()):
                return
            warm = await self._make(digest)
            if self._closed:
                await to_the_end(self.discard(warm))
            else:
                self._warm.setdefault(digest, []).append(warm)
        except (AtollError, OSError) as error:
            _log.warning("the pool cannot be filled: %s", error)
        finally:
            self._making[digest] -= 1
            if not self._making[digest]:
                del self._making[digest]
            self._made.set()

    async def _make(self, digest: str) -> Warm:
        sandbox_id, machine_uid = new_id(), new_machine_uid()
        directory = self._parts.paths.sandbox(sandbox_id)
        # Before a link is taken, because the link would not be given back: the image may be unreadable.
        plan = self._plan(sandbox_id, digest)
        link = await self._parts.links.take()
        running: RunningMachine | None = None
        try:
            with self._parts.registry.pins.during(sandbox_id, digest):
                directory.mkdir(mode=0o700)
                facts = self._parts.images.facts(digest)
                wanted = pool_init(sandbox_id, machine_uid, facts, self._parts.nameserver)
                running = await self._parts.running_machines.begin(plan, link, wanted)
                await self._parts.agents.warm(link, facts.user)
        except BaseException:
            await to_the_end(self._give_up(running, link, directory))
            raise
        return Warm(sandbox_id, machine_uid, plan.versions, running)

    def _plan(self, sandbox_id: str, digest: str) -> RunPlan:
        limits, engine_disk = self._parts.default_limits, self._parts.engine_disks
        if engine_disk:
            limits = msgspec.structs.replace(limits, disk_mib=None)
        return RunPlan(
            sandbox_id=sandbox_id,
            image=self._parts.images.facts(digest).lowers,
            stack=(),
            disk=self._parts.paths.disk(sandbox_id, FIRST_DISK),
            hostname=sandbox_id,
            limits=limits,
            keep_free_percent=0 if engine_disk else KEEP_FREE_PERCENT,
            versions=self._parts.programs.current,
            engine_disk=engine_disk,
        )

    async def _give_up(self, running: RunningMachine | None, link: Link, directory: Path) -> None:
        if running is not None:
            await self._parts.running_machines.end(running)
        await link.aclose()
        await erase(directory)

    async def _looking(self) -> None:
        while True:
            await asyncio.sleep(_LOOK_S)
            try:
                await self.look_after_memory()
            except (AtollError, OSError) as error:
                _log.warning("the pool cannot be looked after: %s", error)

    async def look_after_memory(self) -> None:
        """End all warm machines while the host's memory is short; otherwise make those that are missing."""
        if under_pressure(self._memory()):
            await self.drain()
            await self._parts.running_machines.prestarted_machines.drain()
        else:
            for digest in self._warm.keys() & self._used.keys():
                self._fill(digest)
