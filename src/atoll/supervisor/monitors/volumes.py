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

# Measuring takes at most this share of a processor.
_SHARE = 0.1
_LEAST_S = 0.05
_AGAIN_S = 5.0
_HANGS_S = 5.0
# Who has asked for room within this time gets a part of it; others ask when they need some.
_ACTIVE_S = 10.0
# A new writer waits so long for a measurement that cannot have missed anything. Its writes wait too.
_UNTOLD_S = 10.0
# What others get of each mount, so that their small writes need not wait.
_SPARE_BYTES = 64 << 10
_ENDLESS_BYTES = 1 << 60
_log = logging.getLogger(__name__)


@dataclass(eq=False)
class _Writer:
    """A running machine with the paths at which it may write to volumes, and its parts, by volume."""

    running: RunningMachine
    machine: VolumeRooms
    event_fd: int
    targets: dict[str, list[str]]
    since_s: float
    asked_s: float
    has_event: bool = False
    parts_bytes: dict[str, int] = field(default_factory=dict)


@dataclass(eq=False)
class _Watched:
    """A volume with those who may write to it now. ``wanted`` asks for a measurement."""

    writers: list[_Writer] = field(default_factory=list)
    wanted: asyncio.Event = field(default_factory=asyncio.Event)


@dataclass(frozen=True, eq=False)
class _Measured:
    """What a measurement of a volume with a quota found.

    Attributes:
        left_bytes: What it says is left.
        uses: What the writers say that it may have missed.
        silent: Writers that have not said it.
        kept_bytes: What silent writers may still add.
    """

    left_bytes: int
    uses: dict[_Writer, list[VolumeUse]]
    silent: list[_Writer]
    kept_bytes: int

    @property
    def missed(self) -> list[VolumeUse]:
        """What the writers say, of each mount."""
        return [use for uses in self.uses.values() for use in uses]

    @property
    def may_lack_any(self) -> bool:
        """Whether it may have missed any file: a directory got another name, or a writer does not say."""
        return bool(self.silent) or any(use.moved for use in self.missed)

    def room_bytes(self) -> int:
        """What all writers that are not silent may add together. It is below 0 if there is too much."""
        nameless: dict[tuple[int, int], int] = {}
        for use in self.missed:
            for file, size_bytes in use.nameless.items():
                # Several may have it open.
                nameless[file] = max(size_bytes, nameless.get(file, 0))
        room_bytes = self.left_bytes - self.kept_bytes - sum(nameless.values())
        room_bytes -= sum(use.added_bytes + use.held_bytes for use in self.missed)
        if self.may_lack_any:
            # What the writers had together was within the quota.
            room_bytes = min(room_bytes, sum(_had_bytes(uses) for uses in self.uses.values()))
        return room_bytes


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
        quotas.on_change = self.look

    def follow(self, sandbox: Sandbox, running: RunningMachine) -> None:
        """Watch the volumes of a running machine that a sandbox has just got, until it ends."""
        machine, targets = running.machine, dict[str, list[str]]()
        for path, mount in sandbox.row.volumes.items():
            if not mount.read_only:
                targets.setdefault(mount.volume, []).append(path)
        if targets and isinstance(machine, VolumeRooms):
            self._tasks.watch(self._following(running, machine, targets))

    def look(self, volume_id: str) -> None:
        """Have a volume measured soon, if a sandbox may write to it now."""
        if watched := self._watched.get(volume_id):
            watched.wanted.set()

    async def _following(
        self, running: RunningMachine, machine: VolumeRooms, targets: dict[str, list[str]]
    ) -> None:
        loop = asyncio.get_running_loop()
        event_fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        now_s = time.monotonic()
        writer = _Writer(running, machine, event_fd, targets, since_s=now_s, asked_s=now_s)
        loop.add_reader(event_fd, self._asked, writer)
        for volume_id in targets:
            if volume_id not in self._watched:
                self._watched[volume_id] = _Watched()
                self._tasks.watch(self._watching(volume_id))
            self._watched[volume_id].writers.append(writer)
            self.look(volume_id)
        try:
            await running.gone.wait()
        finally:
            loop.remove_reader(event_fd)
            os.close(event_fd)
            self._forget(writer)

    def _asked(self, writer: _Writer) -> None:
        with contextlib.suppress(BlockingIOError):
            os.eventfd_read(writer.event_fd)
        writer.asked_s = time.monotonic()
        for volume_id in writer.targets:
            self.look(volume_id)

    def _forget(self, writer: _Writer) -> None:
        for volume_id in writer.targets:
            watched = self._watched.get(volume_id)
            if watched is not None and writer in watched.writers:
                watched.writers.remove(writer)
                watched.wanted.set()

    async def _watching(self, volume_id: str) -> None:
        watched = self._watched[volume_id]
        try:
            while True:
                await watched.wanted.wait()
                watched.wanted.clear()
                if not watched.writers:
                    return
                try:
                    pause_s = await self._renew(volume_id, watched.writers)
                except Exception:  # without this watch, guests would be told nothing any more
                    _log.exception("the volume %s will be measured again soon", volume_id)
                    watched.wanted.set()
                    pause_s = _AGAIN_S
                await asyncio.sleep(pause_s)
        finally:
            del self._watched[volume_id]

    async def _renew(self, volume_id: str, writers: list[_Writer]) -> float:
        """Measure a volume and tell all who may write to it. Returns how long not to do so again, in seconds."""
        first = list(writers)
        marked = await self._reached(first, lambda each: each.machine.mark_volumes(each.targets[volume_id]))
        try:
            left_bytes, took_s = await asyncio.to_thread(self._left_bytes, volume_id)
        except OSError as error:
            _log.warning("the volume %s cannot be measured now: %s", volume_id, error)
            self.look(volume_id)
            return _AGAIN_S
        if left_bytes is None:
            rooms = dict.fromkeys(marked, VolumeRoom(_ENDLESS_BYTES, _ENDLESS_BYTES))
            silent = [each for each in first if each not in marked]
        else:
            # Those that came meanwhile may have moved what was not measured yet.
            came = [each for each in writers if each not in first]
            measured = await self._measured(volume_id, left_bytes, marked + came, first + came)
            rooms, silent = _divided(volume_id, measured), measured.silent
            if len(rooms) < len(measured.uses) or any(map(_was_endless, measured.missed)):
                self.look(volume_id)
        told = await self._reached(list(rooms), lambda each: self._tell(each, volume_id, rooms[each]))
        if any(each not in told and not _is_over(each.running) for each in (*silent, *rooms)):
            self.look(volume_id)
            return _AGAIN_S
        return max(_LEAST_S, took_s / _SHARE)

    async def _measured(
        self, volume_id: str, left_bytes: int, asked: list[_Writer], writers: list[_Writer]
    ) -> _Measured:
        """Ask writers what a measurement may have missed."""
        uses = dict[_Writer, list[VolumeUse]]()

        async def ask(writer: _Writer) -> None:
            uses[writer] = list((await writer.machine.use_of_volumes(writer.targets[volume_id])).values())

        await self._reached(asked, ask)
        silent = [each for each in writers if each not in uses]
        kept = (each.parts_bytes.get(volume_id, 0) for each in silent if not each.running.gone.is_set())
        return _Measured(left_bytes, uses, silent, sum(kept))

    async def _reached(
        self, writers: list[_Writer], tell: Callable[[_Writer], Awaitable[None]]
    ) -> list[_Writer]:
        """Tell all, and return those that could be told. One that hangs keeps the others waiting for a moment."""

        async def tried(writer: _Writer) -> bool:
            try:
                async with asyncio.timeout(_HANGS_S):
                    await tell(writer)
            except (AtollError, OSError) as error:
                if not _is_over(writer.running):
                    machine_id = writer.running.machine.machine_id
                    _log.warning("machine %s is told the room in its volumes later: %s", machine_id, error)
                return False
            return True

        reached = await asyncio.gather(*map(tried, writers))
        return [writer for writer, was in zip(writers, reached, strict=True) if was]

    async def _tell(self, writer: _Writer, volume_id: str, room: VolumeRoom) -> None:
        targets = writer.targets[volume_id]
        rooms = dict.fromkeys(targets, room)
        part_bytes = max(0, room.size_bytes) * len(targets)
        given = None if writer.has_event else writer.event_fd
        # Until it has answered, it may still have the last part.
        writer.parts_bytes[volume_id] = max(part_bytes, writer.parts_bytes.get(volume_id, 0))
        if await writer.machine.limit_volumes(rooms, given):
            writer.has_event = True
            writer.parts_bytes[volume_id] = part_bytes
        else:
            self._forget(writer)  # its engine is too old

    def _left_bytes(self, volume_id: str) -> tuple[int | None, float]:
        """What is left of its quota, if it has one, and how many seconds of a processor that took. Blocks."""
        began_s = time.thread_time()
        try:
            quota_mib = self._volumes.get(volume_id).quota_mib
        except VolumeNotFoundError:
            quota_mib = 0
        if quota_mib is None:
            return None, 0.0
        used_bytes = tree_use(self._paths.volume_data(volume_id)).size_bytes
        return (quota_mib << 20) - used_bytes, time.thread_time() - began_s


def _divided(volume_id: str, measured: _Measured) -> dict[_Writer, VolumeRoom]:
    """Divide what is left of a quota among all mounts of a volume.

    Writers that are told later are left out.
    """
    now_s, room_bytes = time.monotonic(), measured.room_bytes()
    mounts = dict[_Writer, int]()
    for each, uses in measured.uses.items():
        if measured.may_lack_any and volume_id not in each.parts_bytes and now_s - each.since_s < _UNTOLD_S:
            room_bytes -= _had_bytes(uses)
        else:
            mounts[each] = len(each.targets[volume_id])
    sure = not measured.may_lack_any and not any(use.added_bytes for use in measured.missed)
    asking = [each for each in mounts if now_s - each.asked_s < _ACTIVE_S] or list(mounts)
    others = sum(mounts.values()) - sum(mounts[each] for each in asking)
    spare_bytes = min(_SPARE_BYTES, max(0, room_bytes) // (8 * max(1, others)))
    part_bytes = (room_bytes - others * spare_bytes) // max(1, sum(mounts[each] for each in asking))
    return {
        each: VolumeRoom(part_bytes if each in asking else min(room_bytes, spare_bytes), room_bytes, sure)
        for each in mounts
    }


def _had_bytes(uses: list[VolumeUse]) -> int:
    """What a writer could still add. One that was not limited had no part."""
    return sum(use.size_bytes for use in uses if not _was_endless(use))


def _was_endless(use: VolumeUse) -> bool:
    return use.size_bytes >= _ENDLESS_BYTES // 2


def _is_over(running: RunningMachine) -> bool:
    return running.gone.is_set() or running.leaving
