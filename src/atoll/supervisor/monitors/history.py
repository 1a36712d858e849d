"""Records the usage of running sandboxes in the last hour."""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from atoll.errors import AtollError
from atoll.types import StatsSample

if TYPE_CHECKING:
    from atoll.engines import MachineStats
    from atoll.snapshots import Layers
    from atoll.supervisor.state.counters import Counters
    from atoll.supervisor.state.inventory import Inventory
    from atoll.supervisor.state.running_machine import RunningMachine
    from atoll.supervisor.state.sandbox import Sandbox
    from atoll.supervisor.state.tasks import Tasks
    from atoll.supervisor.tenants.quotas import TeamQuotas

_EVERY_S = 5.0
_KEPT_S = 3600.0
_KEPT = int(_KEPT_S / _EVERY_S)
# An hour of samples takes 180 KB, and thousands of sandboxes may sleep.
_ASLEEP_MOST = 100
# Without a cgroup that counts, and on disks with many files, sampling is slow. It takes at most this share of
# time.
_SHARE = 0.1
_SELDOM_S = 30.0
# The first moments of a start are left to more urgent work.
_FIRST_S = 0.2
_log = logging.getLogger(__name__)


@dataclass(eq=False, repr=False)
class Past:
    """The samples of one sandbox, the oldest first, and the values that the next sample is computed from.

    Attributes:
        used_s: The processor time between the last two samples of one machine.
    """

    samples: deque[StatsSample] = field(default_factory=lambda: deque(maxlen=_KEPT), init=False)
    disk_bytes: int = field(default=0, init=False)
    measured_s: float = field(default=0.0, init=False)
    used_s: float = field(default=0.0, init=False)
    _machine_id: str = field(default="", init=False)
    _cpu_s: float = field(default=0.0, init=False)
    _at_s: float = field(default=0.0, init=False)

    @property
    def newest_at(self) -> float:
        """When its last sample was taken, in Unix seconds; 0 if there is none."""
        return self.samples[-1].at if self.samples else 0.0

    def cpu_s(self, machine_id: str, since_s: float) -> float | None:
        """The processor time that this machine had used, if it was measured since then."""
        return self._cpu_s if self._machine_id == machine_id and self._at_s >= since_s else None

    def cpu_percent(self, machine_id: str, cpu_s: float | None, vcpus: float, now_s: float) -> float | None:
        """How much of its processors a machine used since the last call, in percent.

        The first sample gives 0.
        """
        self.used_s = 0.0
        if cpu_s is None:
            return None
        passed_s, used_s = now_s - self._at_s, cpu_s - self._cpu_s
        is_first = machine_id != self._machine_id
        self.used_s = 0.0 if is_first else max(0.0, used_s)
        self._machine_id, self._cpu_s, self._at_s = machine_id, cpu_s, now_s
        if is_first or passed_s <= 0:
            return 0.0
        return round(min(100.0, max(0.0, 100 * used_s / passed_s / vcpus)), 2)


@dataclass(kw_only=True, eq=False, repr=False)
class History:
    """Samples all running sandboxes in one task, without asking any guest.

    Args:
        counters: Get the processor time of each team.
        unix_s: Returns Unix seconds.
        clock: Returns monotonic seconds.
    """

    inventory: Inventory
    quotas: TeamQuotas
    layers: Layers
    tasks: Tasks
    counters: Counters
    unix_s: Callable[[], float]
    clock: Callable[[], float] = time.monotonic
    _pasts: dict[str, Past] = field(default_factory=dict, init=False)

    def start(self) -> None:
        """Start to sample."""
        self.tasks.watch(self._sampling())

    def follow(self, sandbox: Sandbox, running: RunningMachine) -> None:
        """Take the first sample of a running machine that a sandbox has just got."""
        self.tasks.watch(self._first(sandbox, running))

    def of(
        self, sandbox: Sandbox, start_s: float | None = None, end_s: float | None = None
    ) -> list[StatsSample]:
        """The samples of a sandbox between two Unix times; None means no bound."""
        past = self._pasts.get(sandbox.sandbox_id)
        return [
            sample
            for sample in (past.samples if past else ())
            if (start_s is None or sample.at >= start_s) and (end_s is None or sample.at <= end_s)
        ]

    def memory_bytes(self, sandbox: Sandbox) -> int:
        """The memory of a sandbox when it was measured last; 0 if it never was, or cannot be."""
        past = self._pasts.get(sandbox.sandbox_id)
        return (past.samples[-1].memory_bytes or 0) if past is not None and past.samples else 0

    def cpu_s(self, sandbox: Sandbox, machine_id: str, within_s: float) -> float | None:
        """The processor time that a machine had used, if it was measured in the last ``within_s`` seconds."""
        past = self._pasts.get(sandbox.sandbox_id)
        return None if past is None else past.cpu_s(machine_id, self.clock() - within_s)

    async def _first(self, sandbox: Sandbox, running: RunningMachine) -> None:
        await asyncio.sleep(_FIRST_S)
        if sandbox.running is running:
            await self._sample(sandbox, running)

    async def _sampling(self) -> None:
        took_s = 0.0
        while True:
            await asyncio.sleep(min(_SELDOM_S, max(_EVERY_S, took_s / _SHARE)))
            began_s = self.clock()
            sandboxes = self.inventory.sandboxes()
            self._forget(sandboxes)
            for sandbox in sandboxes:
                if sandbox.running is not None and sandbox.row.state == "running":
                    await self._sample(sandbox, sandbox.running)
            took_s = self.clock() - began_s

    def _forget(self, sandboxes: Sequence[Sandbox]) -> None:
        for gone in self._pasts.keys() - {one.sandbox_id for one in sandboxes}:
            del self._pasts[gone]
        asleep = {one.sandbox_id for one in sandboxes if one.running is None} & self._pasts.keys()
        if len(asleep) > _ASLEEP_MOST:
            by_age = sorted(asleep, key=lambda sandbox_id: self._pasts[sandbox_id].newest_at)
            for sandbox_id in by_age[:-_ASLEEP_MOST]:
                del self._pasts[sandbox_id]

    async def _sample(self, sandbox: Sandbox, running: RunningMachine) -> None:
        try:
            stats = await running.machine.stats()
            past = self._pasts.setdefault(sandbox.sandbox_id, Past())
            await self._measure(past, running, stats)
        except (AtollError, OSError) as error:
            if not running.leaving and not running.gone.is_set():
                _log.info("cannot measure sandbox %s: %s", sandbox.sandbox_id, error)
            return
        limits = self.quotas.limits_within(sandbox.row)
        vcpus = limits.vcpus or float(os.cpu_count() or 1)
        past.samples.append(
            StatsSample(
                at=self.unix_s(),
                vcpus=vcpus,
                cpu_percent=past.cpu_percent(running.machine.machine_id, stats.cpu_s, vcpus, self.clock()),
                memory_bytes=stats.memory_bytes,
                memory_limit_bytes=stats.memory_limit_bytes,
                disk_bytes=past.disk_bytes,
                disk_limit_bytes=None if limits.disk_mib is None else limits.disk_mib << 20,
            )
        )
        self.counters.add("cpu_s", sandbox.row.team or "", amount=past.used_s)

    async def _measure(self, past: Past, running: RunningMachine, stats: MachineStats) -> None:
        """Measure the disk, unless this would cost too much so soon again: it looks at every file."""
        if stats.disk_bytes is not None:
            past.disk_bytes = stats.disk_bytes
        elif self.clock() >= past.measured_s:
            began_s = self.clock()
            past.disk_bytes = await asyncio.to_thread(self.layers.sizes_changed, running.disk)
            past.measured_s = self.clock() + (self.clock() - began_s) / _SHARE
