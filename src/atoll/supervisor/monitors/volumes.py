"""Measures volumes that running sandboxes may write to, so that their kernels can hold the quotas."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from atoll.engines import VolumeBudget, VolumeBudgets, VolumeUse
from atoll.errors import AtollError, VolumeNotFoundError
from atoll.host import tree_use

if TYPE_CHECKING:
    from atoll.supervisor.state.paths import Paths
    from atoll.supervisor.state.running_machine import RunningMachine
    from atoll.supervisor.state.sandbox import Sandbox
    from atoll.supervisor.state.tasks import Tasks
    from atoll.supervisor.storage.volumes import Volumes
    from atoll.supervisor.tenants.volume_quotas import VolumeQuotas

# The growth that a sandbox is granted at a time, over all its mounts of a volume.
_CHUNK_BYTES = 64 << 20
# While some guests need more than a chunk, the resting guests together may add this part of the free space.
_RESTING_PART = 8
# Measuring takes at most this share of a processor. To ask and tell a guest's kernel takes about a millisecond of it.
_SHARE = 0.1
_ASKED_S = 0.001
_LEAST_S = 0.05
# The pause after many were asked is at most this long: a write waits for three seconds.
_ASKED_PAUSE_MOST_S = 1.0
_AGAIN_S = 5.0
_HANGS_S = 5.0
# When a machine ends, calls to it fail a moment before that is noticed.
_NOTICED_S = 1.0
_ENDLESS_BYTES = 1 << 60
_log = logging.getLogger(__name__)


@dataclass(eq=False, repr=False)
class _Guest:
    """A running machine with volumes that it may write to.

    Attributes:
        targets: Where it has them, by volume.
    """

    running: RunningMachine
    machine: VolumeBudgets
    event_fd: int
    targets: dict[str, list[str]]
    has_event: bool = False

    @property
    def is_over(self) -> bool:
        """Whether its machine ends or has ended."""
        return self.running.gone.is_set() or self.running.leaving


@dataclass(eq=False, repr=False)
class _Watched:
    """A volume with the guests that may write to it now.

    Attributes:
        wanted: Set when a guest needs more, or a measurement is needed.
        stale: Whether it is to be measured before anybody gets more.
        needs: The needs of the guests that have asked, in bytes.
        quota_bytes: Its quota at the last measurement.
        left_bytes: The space left at that time, less the chunks handed out since.
        due_s: When it may be measured again.
    """

    guests: list[_Guest] = field(default_factory=list)
    wanted: asyncio.Event = field(default_factory=asyncio.Event)
    stale: bool = True
    needs: dict[_Guest, int] = field(default_factory=dict)
    quota_bytes: int = 0
    left_bytes: int = 0
    due_s: float = 0.0


class VolumeMonitor:
    """Hands out the quotas of volumes in chunks to the kernels of the sandboxes that may write to them.

    A volume with a quota is measured when a sandbox that may write to it starts or ends, when one needs more,
    and when a client has changed it. If it may not be measured again yet, a guest that needs more gets a
    chunk of the space left by the last measurement. All chunks since a measurement fit into that space. So a
    volume exceeds its quota by at most the unused parts of earlier chunks: one chunk for each sandbox.

    Args:
        volumes: The volumes.
        quotas: Tells when a client has changed a volume.
        paths: Where the volumes are.
        tasks: Owner of the measuring.
    """

    def __init__(
        self,
        *,
        volumes: Volumes,
        quotas: VolumeQuotas,
        paths: Paths,
        tasks: Tasks,
    ) -> None:
        self._volumes = volumes
        self._paths = paths
        self._tasks = tasks
        self._watched: dict[str, _Watched] = {}
        self._followed: set[RunningMachine] = set()
        quotas.on_change = self.look

    def follow(self, sandbox: Sandbox, running: RunningMachine) -> None:
        """Watch the volumes of a running machine, until it ends. A second call does nothing."""
        if running in self._followed:
            return
        targets = dict[str, list[str]]()
        for path, mount in sandbox.row.volumes.items():
            if not mount.read_only:
                targets.setdefault(mount.volume, []).append(path)
        if targets and isinstance(running.machine, VolumeBudgets):
            self._followed.add(running)
            self._tasks.watch(self._following(running, running.machine, targets))

    def look(self, volume_id: str) -> None:
        """Have a volume measured soon, if a sandbox may write to it now."""
        if watched := self._watched.get(volume_id):
            watched.stale = True
            watched.wanted.set()

    async def _following(
        self, running: RunningMachine, machine: VolumeBudgets, targets: dict[str, list[str]]
    ) -> None:
        loop = asyncio.get_running_loop()
        try:
            event_fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
            guest = _Guest(running, machine, event_fd, targets)
            try:
                loop.add_reader(event_fd, self._asked, guest)
                self._join(guest)
                await running.gone.wait()
            finally:
                loop.remove_reader(event_fd)
                os.close(event_fd)
                self._forget(guest)
        finally:
            self._followed.discard(running)

    def _join(self, guest: _Guest) -> None:
        for volume_id in guest.targets:
            if volume_id not in self._watched:
                self._watched[volume_id] = _Watched()
                self._tasks.watch(self._watching(volume_id))
            self._watched[volume_id].guests.append(guest)
            self.look(volume_id)

    def _asked(self, guest: _Guest) -> None:
        needed_bytes = 0
        with contextlib.suppress(BlockingIOError):
            needed_bytes = os.eventfd_read(guest.event_fd)
        for volume_id in guest.targets:
            if watched := self._watched.get(volume_id):
                watched.needs[guest] = watched.needs.get(guest, 0) + needed_bytes
                watched.wanted.set()

    def _forget(self, guest: _Guest) -> None:
        for volume_id in guest.targets:
            watched = self._watched.get(volume_id)
            if watched is not None and guest in watched.guests:
                watched.guests.remove(guest)
                self.look(volume_id)

    async def _watching(self, volume_id: str) -> None:
        watched = self._watched[volume_id]
        try:
            while True:
                await watched.wanted.wait()
                watched.wanted.clear()
                if not watched.guests:
                    return
                try:
                    if not await self._serve(volume_id, watched):
                        await asyncio.sleep(watched.due_s - time.monotonic())
                        await self._renew(volume_id, watched)
                except Exception:  # without this watch, guests would be told nothing any more
                    _log.exception("the volume %s will be measured again soon", volume_id)
                    self._again(volume_id)
                await asyncio.sleep(_LEAST_S)
        finally:
            del self._watched[volume_id]

    async def _serve(self, volume_id: str, watched: _Watched) -> bool:
        """Give every guest that asked a chunk. Returns False if a measurement has to come first."""
        asking = {each: need for each, need in watched.needs.items() if each in watched.guests}
        budgets = {each: _CHUNK_BYTES // len(each.targets[volume_id]) for each in asking}
        if (
            watched.stale
            or time.monotonic() >= watched.due_s
            or watched.left_bytes < _CHUNK_BYTES * len(asking)
            or any(need > budgets[each] for each, need in asking.items())
        ):
            return False
        watched.needs.clear()
        watched.left_bytes -= _CHUNK_BYTES * len(asking)
        told, _ = await self._give(volume_id, budgets, watched)
        return len(told) == len(asking)

    async def _renew(self, volume_id: str, watched: _Watched) -> None:
        """Measure a volume, and tell all guests that may write to it."""
        watched.stale, watched.left_bytes, guests = False, 0, list(watched.guests)
        watched.needs.clear()
        quota_bytes = self._quota_bytes(volume_id)
        if quota_bytes is None:
            budgets, took_s = dict.fromkeys(guests, _ENDLESS_BYTES), 0.0
        else:
            watched.quota_bytes = quota_bytes
            budgets, took_s = await self._measured(volume_id, guests, watched)
        told, missed_bytes = await self._give(volume_id, budgets, watched)
        watched.left_bytes -= sum(size * len(each.targets[volume_id]) for each, size in budgets.items())
        watched.left_bytes -= missed_bytes
        pause_s = max(_LEAST_S, took_s / _SHARE, min(_ASKED_PAUSE_MOST_S, len(guests) * _ASKED_S / _SHARE))
        watched.due_s = time.monotonic() + pause_s
        if any(each not in told and not each.is_over for each in guests):
            self._again(volume_id)

    async def _measured(
        self, volume_id: str, guests: list[_Guest], watched: _Watched
    ) -> tuple[dict[_Guest, int], float]:
        """Measure the space left. Returns each guest's growth for a mount, and the seconds this took."""
        uses = dict[_Guest, list[VolumeUse]]()

        async def measure(guest: _Guest) -> None:
            uses[guest] = list((await guest.machine.measure_volumes(guest.targets[volume_id])).values())

        await self._reached(guests, measure)
        used_bytes, took_s = await asyncio.to_thread(self._use, volume_id)
        for each in uses.values():
            used_bytes += sum(use.nameless_bytes for use in each)
            rests = [use.rest_bytes for use in each if not _is_endless(use.rest_bytes)]
            used_bytes += max(0, sum(rests) - _CHUNK_BYTES)
        watched.left_bytes = watched.quota_bytes - used_bytes
        if any(_is_endless(use.rest_bytes) for each in uses.values() for use in each):
            self.look(volume_id)  # guests could grow without a limit during the measurement
        return _divided(watched.left_bytes, uses, volume_id), took_s

    def _again(self, volume_id: str) -> None:
        asyncio.get_running_loop().call_later(_AGAIN_S, self.look, volume_id)

    async def _give(
        self, volume_id: str, budgets: dict[_Guest, int], watched: _Watched
    ) -> tuple[list[_Guest], int]:
        """Tell guests their growth for a mount. Returns the guests told, and the bytes measurements miss."""
        missed_bytes = 0

        async def give(guest: _Guest) -> None:
            nonlocal missed_bytes
            targets = guest.targets[volume_id]
            budget = VolumeBudget(budgets[guest], watched.left_bytes, watched.quota_bytes)
            event_fd = None if guest.has_event else guest.event_fd
            missed = await guest.machine.limit_volumes(dict.fromkeys(targets, budget), event_fd)
            guest.has_event = True
            missed_bytes += missed

        return await self._reached(list(budgets), give), missed_bytes

    async def _reached(self, guests: list[_Guest], tell: Callable[[_Guest], Awaitable[None]]) -> list[_Guest]:
        """Tell all guests, and return those that were told. A guest that hangs delays this for a moment."""

        async def tried(guest: _Guest) -> bool:
            try:
                async with asyncio.timeout(_HANGS_S):
                    await tell(guest)
            except (AtollError, OSError) as error:
                if not isinstance(error, TimeoutError):
                    with contextlib.suppress(TimeoutError):
                        await asyncio.wait_for(guest.running.gone.wait(), _NOTICED_S)
                if not guest.is_over:
                    machine_id = guest.running.machine.machine_id
                    _log.warning("machine %s is told the budgets of its volumes later: %s", machine_id, error)
                return False
            return True

        reached = await asyncio.gather(*map(tried, guests))
        return [guest for guest, was in zip(guests, reached, strict=True) if was]

    def _quota_bytes(self, volume_id: str) -> int | None:
        try:
            quota_mib = self._volumes.get(volume_id).quota_mib
        except VolumeNotFoundError:
            return 0
        return None if quota_mib is None else quota_mib << 20

    def _use(self, volume_id: str) -> tuple[int, float]:
        """A volume's size, and the processor time in seconds of this measurement. Blocks."""
        began_s = time.thread_time()
        used_bytes = tree_use(self._paths.volume_data(volume_id)).size_bytes
        return used_bytes, time.thread_time() - began_s


def _divided(left_bytes: int, uses: dict[_Guest, list[VolumeUse]], volume_id: str) -> dict[_Guest, int]:
    """Divide the space left. Returns the growth allowed to each guest, for each of its mounts."""
    left_bytes = max(0, left_bytes)
    mounts = {each: len(each.targets[volume_id]) for each in uses}
    needs = {
        each: max((use.needed_bytes for use in use_of_each), default=0) * mounts[each]
        for each, use_of_each in uses.items()
    }
    needing = sum(1 for need in needs.values() if need)
    resting = len(needs) - needing
    rest_bytes = left_bytes // (max(1, resting) * (_RESTING_PART if needing else 1))
    rest_bytes = min(_CHUNK_BYTES, rest_bytes)
    part_bytes = (left_bytes - rest_bytes * resting) // max(1, needing)
    return {
        each: (min(max(_CHUNK_BYTES, need), part_bytes) if need else rest_bytes) // mounts[each]
        for each, need in needs.items()
    }


def _is_endless(size_bytes: int) -> bool:
    return size_bytes >= _ENDLESS_BYTES // 2
