"""Measures volumes that running sandboxes may write to, so that their kernels can hold the quotas."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

from atoll.engines import VolumeRoom, VolumeRooms, VolumeUse
from atoll.errors import AtollError, VolumeNotFoundError
from atoll.host import tree_use

if TYPE_CHECKING:
    from atoll.supervisor.state.paths import Paths
    from atoll.supervisor.state.running_machine import RunningMachine
    from atoll.supervisor.state.sandbox import Sandbox
    from atoll.supervisor.state.tasks import Tasks
    from atoll.supervisor.storage.volumes import Volumes
    from atoll.supervisor.tenants.volume_quotas import VolumeQuotas

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
# Who has asked for room within this time gets a part of it; others ask when they need some.
_ACTIVE_S = 10.0
# A new writer waits so long for a measurement that cannot have missed anything. Its writes wait too.
_UNTOLD_S = 10.0
# What others get of each mount, so that their small writes need not wait, and what they get while there is plenty.
_SPARE_BYTES = 64 << 10
_LARGE_SPARE_BYTES = 16 << 20
_PLENTY_BYTES = 256 << 20
_ENDLESS_BYTES = 1 << 60
_log = logging.getLogger(__name__)


@dataclass(eq=False, repr=False)
class _Guest:
    """A running machine with volumes.

    Attributes:
        mounts: Where it has them, by volume.
        targets: Where it may write to them, by volume.
        parts_bytes: What it may still add, by volume.
        uses: What it said last that a measurement may have missed, by volume.
        told: The volumes of which it has been told what it may add.
    """

    running: RunningMachine
    machine: VolumeRooms
    event_fd: int
    mounts: dict[str, list[str]]
    targets: dict[str, list[str]]
    since_s: float
    asked_s: float
    has_event: bool = False
    parts_bytes: dict[str, int] = field(default_factory=dict)
    uses: dict[str, dict[str, VolumeUse]] = field(default_factory=dict)
    told: set[str] = field(default_factory=set)

    def writes(self, volume_id: str) -> bool:
        """Whether it may write to a volume."""
        return volume_id in self.targets

    @property
    def is_over(self) -> bool:
        """Whether its machine ends or has ended."""
        return self.running.gone.is_set() or self.running.leaving


@dataclass(eq=False, repr=False)
class _Watched:
    """A volume with those that have it now.

    Attributes:
        guests: They.
        came: Those that came since the measurement under way began, gone ones too; None while there is none.
        wanted: Set to ask for a measurement.
        nameless: The files without a name that the last measurement knew of.
    """

    guests: list[_Guest] = field(default_factory=list)
    came: list[_Guest] | None = None
    wanted: asyncio.Event = field(default_factory=asyncio.Event)
    nameless: frozenset[tuple[int, int]] = frozenset()


@dataclass(frozen=True, eq=False)
class _Measured:
    """What a measurement of a volume with a quota found.

    Attributes:
        volume_id: The volume.
        quota_bytes: The volume's quota.
        used_bytes: What the measurement says is in the volume.
        uses: What guests say that it may have missed, by their mounts.
        silent: Guests that may write and have not said it.
        last: What silent guests that only read said the last time. They may keep files, and move none.
    """

    volume_id: str
    quota_bytes: int
    used_bytes: int
    uses: dict[_Guest, dict[str, VolumeUse]]
    silent: list[_Guest]
    last: list[VolumeUse]

    @property
    def missed(self) -> list[VolumeUse]:
        """What the guests say, of each mount."""
        return [*self.last, *(use for uses in self.uses.values() for use in uses.values())]

    @property
    def may_lack_any(self) -> bool:
        """Whether it may have missed any file: a directory got another name, or a guest does not say."""
        return bool(self.silent) or any(use.moved for use in self.missed)

    @cached_property
    def nameless(self) -> dict[tuple[int, int], int]:
        """What files without a name take, in bytes. Several guests may have one open."""
        found: dict[tuple[int, int], int] = {}
        for use in self.missed:
            for file, size_bytes in use.nameless.items():
                found[file] = max(size_bytes, found.get(file, 0))
        return found

    def had_bytes(self, guest: _Guest) -> int:
        """What a guest could still add. One that was not limited had no part."""
        uses = (self.uses[guest].get(path) for path in guest.targets.get(self.volume_id, ()))
        return sum(use.size_bytes for use in uses if use is not None and not _is_endless(use.size_bytes))

    def room_bytes(self) -> int:
        """What all guests that are not silent may add together. It is below 0 if there is too much."""
        silent = (each for each in self.silent if not each.running.gone.is_set())
        room_bytes = self.quota_bytes - self.used_bytes
        room_bytes -= sum(each.parts_bytes.get(self.volume_id, 0) for each in silent)
        room_bytes -= sum(use.added_bytes + use.held_bytes for use in self.missed) + sum(
            self.nameless.values()
        )
        if self.may_lack_any:
            # What the guests had together was within the quota.
            room_bytes = min(room_bytes, sum(map(self.had_bytes, self.uses)))
        return max(-_ENDLESS_BYTES, min(room_bytes, _ENDLESS_BYTES))


class VolumeMonitor:
    """Tells the kernels of running sandboxes how much they may still add to their volumes.

    A volume with a quota is measured when a sandbox with it starts or ends, when half of what a sandbox was
    told is used, and when a client has changed it. What is left is divided equally among the mounts of those
    that have asked lately, or of all if nobody has.

    Args:
        volumes: The volumes.
        quotas: Says when clients have changed one.
        paths: Where they are.
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
        machine = running.machine
        mounts, targets = dict[str, list[str]](), dict[str, list[str]]()
        for path, mount in sandbox.row.volumes.items():
            mounts.setdefault(mount.volume, []).append(path)
            if not mount.read_only:
                targets.setdefault(mount.volume, []).append(path)
        if mounts and isinstance(machine, VolumeRooms):
            self._followed.add(running)
            self._tasks.watch(self._following(running, machine, mounts, targets))

    def look(self, volume_id: str) -> None:
        """Have a volume measured soon, if a sandbox may write to it now."""
        if watched := self._watched.get(volume_id):
            watched.wanted.set()

    async def _following(
        self,
        running: RunningMachine,
        machine: VolumeRooms,
        mounts: dict[str, list[str]],
        targets: dict[str, list[str]],
    ) -> None:
        loop = asyncio.get_running_loop()
        try:
            event_fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
            now_s = time.monotonic()
            guest = _Guest(running, machine, event_fd, mounts, targets, since_s=now_s, asked_s=now_s)
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
        for volume_id in guest.mounts:
            if volume_id not in self._watched:
                self._watched[volume_id] = _Watched()
                self._tasks.watch(self._watching(volume_id))
            watched = self._watched[volume_id]
            watched.guests.append(guest)
            if watched.came is not None:
                watched.came.append(guest)
            if guest.writes(volume_id):
                watched.wanted.set()

    def _asked(self, guest: _Guest) -> None:
        with contextlib.suppress(BlockingIOError):
            os.eventfd_read(guest.event_fd)
        guest.asked_s = time.monotonic()
        for volume_id in guest.targets:
            self.look(volume_id)

    def _forget(self, guest: _Guest) -> None:
        for volume_id in guest.mounts:
            watched = self._watched.get(volume_id)
            if watched is not None and guest in watched.guests:
                watched.guests.remove(guest)
                if guest.writes(volume_id) or not watched.guests:
                    watched.wanted.set()

    async def _watching(self, volume_id: str) -> None:
        watched = self._watched[volume_id]
        try:
            while True:
                await watched.wanted.wait()
                watched.wanted.clear()
                if not watched.guests:
                    return
                if not any(each.writes(volume_id) for each in watched.guests):
                    continue
                came = watched.came = list[_Guest]()
                try:
                    pause_s = await self._renew(volume_id, watched, came)
                except Exception:  # without this watch, guests would be told nothing any more
                    _log.exception("the volume %s will be measured again soon", volume_id)
                    watched.wanted.set()
                    pause_s = _AGAIN_S
                finally:
                    watched.came = None
                await asyncio.sleep(pause_s)
        finally:
            del self._watched[volume_id]

    async def _renew(self, volume_id: str, watched: _Watched, came: list[_Guest]) -> float:
        """Measure a volume and tell all who may write to it. Returns how long not to do so again, in seconds."""
        first = list(watched.guests)
        marked = await self._reached(
            [each for each in first if each.writes(volume_id)],
            lambda each: each.machine.mark_volumes(each.targets[volume_id]),
        )
        try:
            quota_bytes, used_bytes, took_s = await asyncio.to_thread(self._use, volume_id)
        except OSError as error:
            _log.warning("the volume %s cannot be measured now: %s", volume_id, error)
            watched.wanted.set()
            return _AGAIN_S
        if quota_bytes is None:
            rooms = dict.fromkeys(marked, VolumeRoom(_ENDLESS_BYTES, _ENDLESS_BYTES))
            silent = [each for each in first if each.writes(volume_id) and each not in marked]
        else:
            # Those that came meanwhile may have moved what was not measured yet.
            asked = [each for each in first if each in marked or not each.writes(volume_id)]
            measured = await self._measured(volume_id, quota_bytes, used_bytes, asked + came, first + came)
            rooms, silent = _divided(measured, watched.nameless), measured.silent
            watched.nameless = frozenset(measured.nameless)
            waiting = (each for each in measured.uses if each.writes(volume_id) and each not in rooms)
            if any(waiting) or any(_is_endless(use.size_bytes) for use in measured.missed):
                watched.wanted.set()
        told = await self._reached(list(rooms), lambda each: self._tell(each, volume_id, rooms[each]))
        later = [each for each in (*silent, *rooms) if each not in told and not each.running.gone.is_set()]
        if later:
            watched.wanted.set()
            if not all(each.is_over for each in later):
                return _AGAIN_S
        return max(_LEAST_S, took_s / _SHARE, min(_ASKED_PAUSE_MOST_S, len(first) * _ASKED_S / _SHARE))

    async def _measured(
        self, volume_id: str, quota_bytes: int, used_bytes: int, asked: list[_Guest], guests: list[_Guest]
    ) -> _Measured:
        """Ask guests what a measurement may have missed."""
        uses = dict[_Guest, dict[str, VolumeUse]]()

        async def ask(guest: _Guest) -> None:
            # One that is frozen would have to be thawed for this.
            if guest.writes(volume_id) or not guest.running.may_be_frozen:
                guest.uses[volume_id] = await guest.machine.use_of_volumes(guest.mounts[volume_id])
                uses[guest] = guest.uses[volume_id]

        await self._reached(asked, ask)
        silent = [each for each in guests if each not in uses]
        last = [
            use
            for each in silent
            if not each.writes(volume_id) and not each.running.gone.is_set()
            for use in each.uses.get(volume_id, {}).values()
        ]
        writers = [each for each in silent if each.writes(volume_id)]
        return _Measured(volume_id, quota_bytes, used_bytes, uses, writers, last)

    async def _reached(self, guests: list[_Guest], tell: Callable[[_Guest], Awaitable[None]]) -> list[_Guest]:
        """Tell all, and return those that could be told. One that hangs keeps the others waiting for a moment."""

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
                    _log.warning("machine %s is told the room in its volumes later: %s", machine_id, error)
                return False
            return True

        reached = await asyncio.gather(*map(tried, guests))
        return [guest for guest, was in zip(guests, reached, strict=True) if was]

    async def _tell(self, guest: _Guest, volume_id: str, room: VolumeRoom) -> None:
        targets = guest.targets[volume_id]
        part_bytes = 0 if _is_endless(room.size_bytes) else max(0, room.size_bytes) * len(targets)
        given = None if guest.has_event else guest.event_fd
        # Until it has answered, it may still have the last part.
        guest.parts_bytes[volume_id] = max(part_bytes, guest.parts_bytes.get(volume_id, 0))
        await guest.machine.limit_volumes(dict.fromkeys(targets, room), given)
        guest.has_event = True
        guest.told.add(volume_id)
        guest.parts_bytes[volume_id] = part_bytes

    def _use(self, volume_id: str) -> tuple[int | None, int, float]:
        """Its quota, if it has one, then what is in it, and how many seconds of a processor that took. Blocks."""
        began_s = time.thread_time()
        try:
            quota_mib = self._volumes.get(volume_id).quota_mib
        except VolumeNotFoundError:
            quota_mib = 0
        if quota_mib is None:
            return None, 0, 0.0
        used_bytes = tree_use(self._paths.volume_data(volume_id)).size_bytes
        return quota_mib << 20, used_bytes, time.thread_time() - began_s


def _divided(measured: _Measured, known: frozenset[tuple[int, int]]) -> dict[_Guest, VolumeRoom]:
    """Divide what is left of a quota among all mounts that may be written to.

    Guests that are told later are left out.

    Args:
        measured: The measurement.
        known: Files that had no name the last time. The name of another one may have been measured before it went.
    """
    now_s, room_bytes = time.monotonic(), measured.room_bytes()
    mounts = dict[_Guest, int]()
    for each in measured.uses:
        if not each.writes(measured.volume_id):
            continue
        is_new = measured.volume_id not in each.told and now_s - each.since_s < _UNTOLD_S
        if measured.may_lack_any and is_new:
            room_bytes -= measured.had_bytes(each)
        else:
            mounts[each] = len(each.targets[measured.volume_id])
    sure = not measured.may_lack_any and not any(use.added_bytes for use in measured.missed)
    sure = sure and not measured.last and measured.nameless.keys() <= known
    asking = [each for each in mounts if now_s - each.asked_s < _ACTIVE_S] or list(mounts)
    others = sum(mounts.values()) - sum(mounts[each] for each in asking)
    spare_bytes = max(0, room_bytes) // (8 * max(1, others))
    spare_bytes = min(spare_bytes, _SPARE_BYTES if room_bytes < _PLENTY_BYTES else _LARGE_SPARE_BYTES)
    part_bytes = (room_bytes - others * spare_bytes) // max(1, sum(mounts[each] for each in asking))
    return {
        each: VolumeRoom(
            part_bytes if each in asking else spare_bytes, room_bytes, sure, measured.quota_bytes
        )
        for each in mounts
    }


def _is_endless(size_bytes: int) -> bool:
    return size_bytes >= _ENDLESS_BYTES // 2
