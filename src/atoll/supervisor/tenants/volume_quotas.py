"""Refuses new data of clients in volumes that have used up their quotas."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from atoll.errors import QuotaError
from atoll.host import tree_bytes
from atoll.supervisor.tenants.disk_sizes import measured

if TYPE_CHECKING:
    from atoll.supervisor.state.paths import Paths
    from atoll.supervisor.state.rows import VolumeRow
    from atoll.supervisor.state.tasks import Tasks
    from atoll.supervisor.storage.volumes import Volumes
    from atoll.types import VolumeMount

# A measurement is valid for this many times its own duration: measuring then costs at most 5 % of a
# processor.
_FRESH_TIMES = 20
# A caller waits no longer than this. Then the last measurement counts, or zero if there is none.
_WAIT_S = 2.0
# A new file takes at least a block, and perhaps one of its directory.
_FILE_BYTES = 8192


@dataclass(frozen=True)
class _Measure:
    """``sent_before`` is the total that clients had ever sent when the measurement began."""

    size_bytes: int
    sent_before: int
    at_s: float
    took_s: float


class VolumeQuotas:
    """Holds the quotas of volumes for clients. Measures only volumes with a quota, and only when asked.

    Between two measurements it adds the bytes that clients send. Writes of sandboxes show in the next
    measurement: guest kernels hold the quota, see ``VolumeMonitor``, which hears of changes by ``on_change``.

    Args:
        volumes: The volumes.
        paths: Where the volumes are.
        tasks: Owner of the measuring.
    """

    def __init__(self, volumes: Volumes, paths: Paths, tasks: Tasks) -> None:
        self._volumes = volumes
        self._paths = paths
        self._tasks = tasks
        self._measures: dict[str, _Measure] = {}
        self._measuring: dict[str, asyncio.Task[None]] = {}
        self._sent: Counter[str] = Counter()
        self.on_change: Callable[[str], None] | None = None

    async def check_mounts(self, mounts: Iterable[VolumeMount]) -> None:
        """Refuse a new sandbox that could write to a volume that is full.

        Raises:
            VolumeNotFoundError: A volume is gone.
            QuotaError: A volume is full.
        """
        for volume_id in sorted({mount.volume for mount in mounts if not mount.read_only}):
            await self.check(self._volumes.get(volume_id))

    async def check(self, row: VolumeRow) -> None:
        """Refuse new data in a full volume.

        Raises:
            QuotaError: The volume is full.
        """
        if row.quota_mib is not None:
            await self._renew(row.volume_id)
            await self._check(row, row.quota_mib << 20, 1)

    async def within(self, row: VolumeRow, pieces: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        """The pieces of a new file, as long as they fit. A file that it replaces counts until it is replaced.

        Raises:
            QuotaError: The next piece does not fit.
        """
        if row.quota_mib is None:
            async for piece in pieces:
                yield piece
            return
        most_bytes = row.quota_mib << 20
        await self._renew(row.volume_id)
        await self._take(row, most_bytes, _FILE_BYTES)
        async for piece in pieces:
            await self._take(row, most_bytes, len(piece))
            yield piece

    def changed(self, volume_id: str) -> None:
        """Note that a client has changed a volume's content or quota, so that it is measured again."""
        self._measures.pop(volume_id, None)
        self.added(volume_id)

    def added(self, volume_id: str) -> None:
        """Note that a client has added data within the quota."""
        if self.on_change is not None:
            self.on_change(volume_id)

    async def _take(self, row: VolumeRow, most_bytes: int, size_bytes: int) -> None:
        await self._check(row, most_bytes, size_bytes)
        self._sent[row.volume_id] += size_bytes

    async def _check(self, row: VolumeRow, most_bytes: int, more_bytes: int) -> None:
        used_bytes = self._used_bytes(row.volume_id)
        if used_bytes + more_bytes > most_bytes:
            # Sent bytes may never have become a file, or may have replaced another.
            await self._renew(row.volume_id, exact=True)
            used_bytes = self._used_bytes(row.volume_id)
        if used_bytes + more_bytes > most_bytes:
            used = f"{used_bytes / (1 << 20):.1f} of {most_bytes >> 20} MiB are used"
            raise QuotaError(
                f"the volume {row.name!r} has no room for that: {used}",
                hint="remove files of it, or raise the quota: `atoll volume set`",
            )

    def _used_bytes(self, volume_id: str) -> int:
        measure = self._measures.get(volume_id)
        if measure is None:
            return self._sent[volume_id]
        return measure.size_bytes + self._sent[volume_id] - measure.sent_before

    async def _renew(self, volume_id: str, *, exact: bool = False) -> None:
        """Measure a volume, unless that was done lately enough and, if it is to be exact, nothing was sent since."""
        measure = self._measures.get(volume_id)
        if (
            measure is None
            or time.monotonic() - measure.at_s > _FRESH_TIMES * measure.took_s
            or (exact and self._sent[volume_id] > measure.sent_before)
        ):
            await self._measure(volume_id)

    async def _measure(self, volume_id: str) -> None:
        task = self._measuring.get(volume_id)
        if task is None:
            task = self._measuring[volume_id] = self._tasks.watch(self._measured(volume_id))
            task.add_done_callback(lambda _: self._measuring.pop(volume_id, None))
        await asyncio.wait({task}, timeout=_WAIT_S)

    async def _measured(self, volume_id: str) -> None:
        sent_before, before = self._sent[volume_id], self._measures.get(volume_id)
        work = partial(tree_bytes, self._paths.volume(volume_id))
        size_bytes, took_s = await asyncio.to_thread(measured, work, before.size_bytes if before else 0)
        self._measures[volume_id] = _Measure(size_bytes, sent_before, time.monotonic(), took_s)
        for gone in (self._measures.keys() | self._sent.keys()) - self._volumes.ids():
            self._measures.pop(gone, None)
            self._sent.pop(gone, None)
