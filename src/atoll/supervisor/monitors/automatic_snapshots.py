"""Makes snapshots of running sandboxes that want them, while something changes there, and removes old ones."""

from __future__ import annotations

import asyncio
import logging
import math
from collections import defaultdict
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from atoll.errors import AtollError, SandboxCrashedError, SandboxNotFoundError
from atoll.snapshots import surplus
from atoll.supervisor.monitors.snapshot_due import (
    ActivityReading,
    SnapshotDue,
    has_grown,
    has_worked,
    may_have_worked,
)
from atoll.supervisor.state.reasons import reason_of
from atoll.types import SnapshotFailure

if TYPE_CHECKING:
    from atoll.snapshots import Layers
    from atoll.supervisor.lifecycle.snapshot import Snapshots
    from atoll.supervisor.state.clock import Clock
    from atoll.supervisor.state.inventory import Inventory
    from atoll.supervisor.state.running_machine import RunningMachine
    from atoll.supervisor.state.sandbox import Sandbox
    from atoll.supervisor.state.tasks import Tasks

_LOOK_S = 1.0
_TIDY_S = 10.0
_AT_ONCE = 1
# A host that does not answer within this time is busy; the next look is soon.
_STATS_S = 5.0
_log = logging.getLogger(__name__)


class _Watch:
    """A sandbox's record since its last snapshot."""

    def __init__(self, base: ActivityReading, turns: SnapshotDue, *, changed: bool) -> None:
        self.machine_id = ""
        self.snapshot_id: str | None = None
        self.base = self.last = base
        self.turns = turns
        self.changed = changed
        self.doubted = False


@dataclass(kw_only=True, eq=False, repr=False)
class AutomaticSnapshots:
    """Watches all sandboxes with ``Lifecycle.snapshot_every_s`` in one task.

    Args:
        tell: Writes a line into a sandbox's log.
    """

    inventory: Inventory
    snapshots: Snapshots
    layers: Layers
    tasks: Tasks
    clock: Clock
    tell: Callable[[str, str], None]
    _watches: dict[str, _Watch] = field(default_factory=dict, init=False)
    _going: set[str] = field(default_factory=set, init=False)
    _turn: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(_AT_ONCE), init=False)
    _began_at: float = field(init=False)
    _closed: bool = field(default=False, init=False)

    def __post_init__(self) -> None:
        self._began_at = self.clock.unix_s()

    def close(self) -> None:
        """Begin no snapshot any more."""
        self._closed = True

    async def run(self) -> None:
        """Watch until ``close``."""
        tidied_s = self.clock.boot_s()
        while not self._closed:
            await asyncio.sleep(_LOOK_S)
            await self.look()
            if self.clock.boot_s() - tidied_s >= _TIDY_S:
                tidied_s = self.clock.boot_s()
                await self.tidy()

    async def look(self) -> None:
        """Look once at each sandbox, and begin the snapshots that are due."""
        sandboxes = self.inventory.sandboxes()
        for gone in self._watches.keys() - {one.sandbox_id for one in sandboxes}:
            del self._watches[gone]
        for sandbox in sandboxes:
            running = sandbox.running
            if running is None or not _is_wanted(sandbox) or sandbox.sandbox_id in self._going:
                continue
            with suppress(AtollError, OSError, TimeoutError):  # its end is noticed elsewhere
                async with asyncio.timeout(_STATS_S):
                    await self._look_at(sandbox, running)

    async def tidy(self, *, newest_only: bool = False) -> None:
        """Remove the snapshots made here that are not kept any more, unless something stands on them.

        Args:
            newest_only: Keep only the newest of each sandbox, because the disk is nearly full.
        """
        owners = {
            sandbox_id: one.row
            for one in self.inventory.sandboxes()
            for sandbox_id in (one.sandbox_id, *one.row.promoted)
        }
        bases = {row.snapshot_id for row in owners.values()}
        made_at: dict[str, dict[str, float]] = defaultdict(dict)
        for row in self.inventory.snapshots(forgotten=False):
            if row.automatic:
                made_at[row.sandbox_id][row.snapshot_id] = row.created_at
        for sandbox_id, made in made_at.items():
            owner = owners.get(sandbox_id)
            # Snapshots made for crashes do not outlive a sandbox that its user has killed.
            old = (
                list(made)
                if owner is None
                else surplus(made, 1, math.inf)
                if newest_only
                else surplus(made, owner.lifecycle.snapshots_kept, self.clock.unix_s())
            )
            for snapshot_id in old:
                if snapshot_id not in bases and not self.inventory.pins.has(snapshot_id):
                    await self._remove(snapshot_id)

    async def _remove(self, snapshot_id: str) -> None:
        try:
            await self.tasks.run(self.snapshots.remove(snapshot_id))
        except (AtollError, OSError) as error:  # it is still needed
            _log.debug("the automatic snapshot %s stays: %s", snapshot_id, error)

    async def _look_at(self, sandbox: Sandbox, running: RunningMachine) -> None:
        watch = self._watches.get(sandbox.sandbox_id)
        if watch is None:
            watch = self._watches[sandbox.sandbox_id] = await self._first(sandbox, running)
        row, machine_id = sandbox.row, running.machine.machine_id
        if row.snapshot_id != watch.snapshot_id:  # a user has made one, or has gone back to one
            watch.turns.made(self.clock.boot_s())
            await self._rebase(watch, sandbox, running)
        elif machine_id != watch.machine_id:
            # The sandbox slept meanwhile, and its work right before that was not seen.
            changed = watch.changed or watch.machine_id != ""
            await self._rebase(watch, sandbox, running)
            watch.changed = changed
        elif not watch.changed:
            now = await self._read(running)
            watch.changed = has_worked(watch.last, now)
            watch.last = now
        every_s = row.lifecycle.snapshot_every_s
        if every_s is None or not watch.turns.is_due(every_s, self.clock.boot_s()):
            return
        if not watch.changed:
            watch.changed = has_grown(watch.base, await self._measure(running))
            watch.turns.made(self.clock.boot_s())
        if watch.changed and not sandbox.lock.locked() and not self._closed:
            self._going.add(sandbox.sandbox_id)
            making = self.tasks.spawn(self._make(sandbox, watch, every_s))
            making.add_done_callback(lambda _: self._going.discard(sandbox.sandbox_id))

    async def _first(self, sandbox: Sandbox, running: RunningMachine) -> _Watch:
        row, since_at = sandbox.row, sandbox.row.created_at
        if row.snapshot_id is not None:
            with suppress(AtollError):
                since_at = max(since_at, self.inventory.snapshot(row.snapshot_id).created_at)
        passed_s = max(0.0, self.clock.unix_s() - since_at)
        base = await self._measure(running)
        # Work under an earlier supervisor, or between the machine's start and this look, was not seen.
        changed = sandbox.dialled or row.created_at < self._began_at
        watch = _Watch(base, SnapshotDue(self.clock.boot_s() - passed_s), changed=changed)
        watch.machine_id, watch.snapshot_id = running.machine.machine_id, row.snapshot_id
        return watch

    async def _rebase(self, watch: _Watch, sandbox: Sandbox, running: RunningMachine) -> None:
        """Begin to measure anew: nothing has changed since this moment."""
        watch.machine_id, watch.snapshot_id = running.machine.machine_id, sandbox.row.snapshot_id
        watch.base = watch.last = await self._measure(running)
        watch.changed = False

    async def _read(self, running: RunningMachine) -> ActivityReading:
        stats = await running.machine.stats()
        return ActivityReading(self.clock.boot_s(), stats.cpu_s, stats.memory_bytes, stats.disk_bytes)

    async def _measure(self, running: RunningMachine) -> ActivityReading:
        reading = await self._read(running)
        if reading.disk_bytes is not None:
            return reading
        size_bytes = await asyncio.to_thread(self.layers.sizes_changed, running.disk)
        return reading._replace(disk_bytes=size_bytes)

    async def _make(self, sandbox: Sandbox, watch: _Watch, every_s: float) -> None:
        async with self._turn:
            if self._closed or not _is_wanted(sandbox):
                return
            began_s = self.clock.boot_s()
            try:
                before = await self._read(sandbox.require_running())
                with sandbox.idleness.unnoticed():
                    made = await self.snapshots.make_if_free(sandbox, needs_bytes=_needs_bytes(watch.base))
            except (AtollError, OSError) as error:
                watch.turns.failed(every_s, self.clock.boot_s())
                if _is_wanted(sandbox) and not isinstance(error, SandboxCrashedError | SandboxNotFoundError):
                    await self._note(
                        sandbox, SnapshotFailure(at=self.clock.unix_s(), reason=reason_of(error))
                    )
                return
            if made is None:
                return
            now_s = self.clock.boot_s()
            watch.turns.made(now_s, now_s - began_s)
            if sandbox.row.snapshot_failed is not None:
                await self._note(sandbox, None)
            running = sandbox.running
            if running is not None and sandbox.row.snapshot_id == made.snapshot_id:
                with suppress(AtollError, OSError):
                    await self._rebase(watch, sandbox, running)
            # Work done during this write waits for the next snapshot. A doubt brings only one further
            # snapshot.
            watch.doubted = watch.changed = not watch.doubted and may_have_worked(before, watch.last)
        await self.tidy()

    async def _note(self, sandbox: Sandbox, failure: SnapshotFailure | None) -> None:
        if failure is not None:
            before = sandbox.row.snapshot_failed
            if before is None or before.reason != failure.reason:
                self.tell(sandbox.sandbox_id, f"no automatic snapshot: {failure.reason}")
            _log.info("sandbox %s has no automatic snapshot: %s", sandbox.sandbox_id, failure.reason)
        async with sandbox.lock:
            if sandbox.row.state == "killed":
                return
            try:
                await self.inventory.change(sandbox, snapshot_failed=failure)
            except (AtollError, OSError):  # on a full disk, only memory keeps it
                sandbox.row = sandbox.row.but(snapshot_failed=failure)


def _is_wanted(sandbox: Sandbox) -> bool:
    row = sandbox.row
    wanted = row.lifecycle.snapshot_every_s is not None and sandbox.unplugged is None
    return wanted and row.state == "running" and not row.napping


def _needs_bytes(base: ActivityReading) -> int:
    return (base.memory_bytes or 0) + (base.disk_bytes or 0)
