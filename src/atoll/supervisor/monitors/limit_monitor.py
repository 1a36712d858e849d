"""Watches the limits that no kernel enforces: disks, and memory if there is no cgroup."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from atoll.engines import DiskBudget, memory_bytes
from atoll.supervisor.monitors.disk import DiskMonitor
from atoll.supervisor.state.sandbox import memory_reason
from atoll.supervisor.state.tasks import Tasks
from atoll.types import Limits

if TYPE_CHECKING:
    from atoll.snapshots import Layers
    from atoll.supervisor.state.running_machine import RunningMachine
    from atoll.supervisor.state.sandbox import Sandbox
    from atoll.supervisor.tenants.quotas import TeamQuotas

_LOOK_S = 1.0
_LEAST_S = 0.05
# No guest allocates memory faster than this.
_FASTEST_BYTES_S = 4 << 30


@dataclass(kw_only=True, eq=False, repr=False)
class LimitMonitor:
    """Watches the disks and memory of a home's sandboxes.

    Args:
        cgroups: Whether machines have cgroups, which limit their memory.
    """

    quotas: TeamQuotas
    layers: Layers
    tasks: Tasks
    cgroups: bool

    def follow(self, sandbox: Sandbox, running: RunningMachine) -> None:
        """Watch a running machine that a sandbox has just got, until it ends."""

        def limits() -> Limits:
            return self.quotas.limits_within(sandbox.row)

        def seldom() -> bool:
            return self.quotas.has_default_disk(sandbox.row)

        machine = running.machine
        if isinstance(machine, DiskBudget):
            watch = DiskMonitor(running, machine, self.layers, limits, seldom)
            self.tasks.watch(_until_gone(running, watch.run()))
        if not self.cgroups:
            self.tasks.watch(_until_gone(running, watch_memory(running, limits)))


def pause_s(used_bytes: int, limit_bytes: int) -> float:
    """The shortest time in which a guest that uses this much memory can reach its limit."""
    return min(_LOOK_S, max(_LEAST_S, (limit_bytes - used_bytes) / _FASTEST_BYTES_S))


async def watch_memory(running: RunningMachine, limits: Callable[[], Limits]) -> None:
    """End the machine if it uses more memory than it may."""
    while True:
        used_bytes, limit_mib = memory_bytes(running.machine), limits().memory_mib
        if used_bytes is None or limit_mib is None:
            await asyncio.sleep(_LOOK_S)
            continue
        if used_bytes > limit_mib << 20:
            running.reason = memory_reason(limit_mib)
            await running.machine.kill()
            return
        await asyncio.sleep(pause_s(used_bytes, limit_mib << 20))


async def _until_gone(running: RunningMachine, watching: Awaitable[None]) -> None:
    task = asyncio.ensure_future(watching)
    gone = asyncio.ensure_future(running.gone.wait())
    try:
        await asyncio.wait({task, gone}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        task.cancel()
        gone.cancel()
        await asyncio.gather(task, gone, return_exceptions=True)
