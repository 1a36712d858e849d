"""Watches what no kernel holds: disks, and memory where there is no cgroup."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from atoll.supervisor.machines.disk_budget import DiskWatch
from atoll.supervisor.state.registry import memory_reason
from atoll.supervisor.state.tasks import Works
from atoll.types import Limits

if TYPE_CHECKING:
    from atoll.supervisor.lifecycle.parts import Parts
    from atoll.supervisor.machines.running_machine import Berth
    from atoll.supervisor.state.registry import Sandbox

_LOOK_S = 1.0
_LEAST_S = 0.05
# No guest takes memory faster than this.
_FASTEST_BYTES_S = 4 << 30


class LimitWatch:
    """Watches the sandboxes of a home.

    Args:
        parts: What sandboxes are made of.
        works: Owner of the watching.
    """

    def __init__(self, parts: Parts, works: Works) -> None:
        self._parts = parts
        self._works = works

    def follow(self, sandbox: Sandbox, berth: Berth) -> None:
        """Watch a berth that has just become the sandbox's, as long as it lives."""

        def limits() -> Limits:
            return self._parts.quotas.limits_within(sandbox.row)

        def seldom() -> bool:
            return self._parts.quotas.has_default_disk(sandbox.row)

        watch = DiskWatch(berth, self._parts.layers, limits, seldom)
        self._works.watch(_until_gone(berth, watch.run()))
        if not self._parts.means.cgroups:
            self._works.watch(_until_gone(berth, watch_memory(berth, limits)))


def pause_s(used_bytes: int, limit_bytes: int) -> float:
    """How long a guest that uses so much memory needs to reach its limit, at the least."""
    return min(_LOOK_S, max(_LEAST_S, (limit_bytes - used_bytes) / _FASTEST_BYTES_S))


async def watch_memory(berth: Berth, limits: Callable[[], Limits]) -> None:
    """End the machine when it uses more memory than it may."""
    while True:
        used_bytes, limit_mib = berth.machine.memory_bytes(), limits().memory_mib
        if used_bytes is None or limit_mib is None:
            await asyncio.sleep(_LOOK_S)
            continue
        if used_bytes > limit_mib << 20:
            berth.reason = memory_reason(limit_mib)
            await berth.machine.kill()
            return
        await asyncio.sleep(pause_s(used_bytes, limit_mib << 20))


async def _until_gone(berth: Berth, watching: Awaitable[None]) -> None:
    task = asyncio.ensure_future(watching)
    gone = asyncio.ensure_future(berth.gone.wait())
    try:
        await asyncio.wait({task, gone}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        task.cancel()
        gone.cancel()
        await asyncio.gather(task, gone, return_exceptions=True)
