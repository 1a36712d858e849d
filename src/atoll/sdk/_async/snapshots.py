"""The snapshots of a home."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

from atoll.protocol import VerifyRequest
from atoll.sdk._async.api import LONG_S, AsyncApi, ignored, ref
from atoll.types import Progress, SnapshotInfo, VerifyReport
from atoll.types.internal import check_text

_Snapshots = list[SnapshotInfo]


class AsyncSnapshots:
    """Lists, describes, checks and deletes stored states of sandboxes. ``Sandbox.snapshot`` makes one."""

    @staticmethod
    async def list(*, sandbox: str | None = None, team: str | None = None) -> _Snapshots:
        """List the snapshots of the home, oldest first: all, one team's, or those made of one sandbox."""
        wanted = {"sandbox": sandbox, "team": team}
        query = "&".join(f"{name}={ref(value)}" for name, value in wanted.items() if value is not None)
        with contextlib.closing(AsyncApi()) as api:
            return await api.call("GET", f"/v1/snapshots?{query}", list[SnapshotInfo])

    @staticmethod
    async def get(id_or_name: str) -> SnapshotInfo:
        """Return the info of a snapshot.

        Raises:
            SnapshotNotFoundError: No snapshot has that id or name.
        """
        with contextlib.closing(AsyncApi()) as api:
            return await api.call("GET", f"/v1/snapshots/{ref(id_or_name)}", SnapshotInfo)

    @staticmethod
    async def digest(id_or_name: str) -> str:
        """Return a digest of the whole snapshot: its memory, its disk, and its image.

        Sandboxes made of snapshots with the same digest start from the same state, byte by byte. The first
        call reads the whole snapshot.

        Raises:
            SnapshotNotFoundError: No snapshot has that id or name.
            DamagedError: A part of it cannot be read.
        """
        with contextlib.closing(AsyncApi()) as api:
            path = f"/v1/snapshots/{ref(id_or_name)}/digest"
            return await api.call("GET", path, str, timeout_s=LONG_S)

    @staticmethod
    async def delete(id_or_name: str) -> None:
        """Delete a snapshot. Its files are erased soon after.

        Raises:
            SnapshotNotFoundError: No snapshot has that id or name.
            InUseError: Another snapshot or a sandbox depends on it.
        """
        with contextlib.closing(AsyncApi()) as api:
            await api.delete(f"/v1/snapshots/{ref(id_or_name)}")

    @staticmethod
    async def verify(*names: str, on_progress: Callable[[Progress], Any] | None = None) -> VerifyReport:
        """Read checkpoints and layers of snapshots and report the files that do not match their checksums.

        Without names, check all snapshots, and also the layers and checkpoints of sandboxes. Files without
        checksums get them; nothing else changes. Sandboxes keep running meanwhile.

        Args:
            names: Ids or names.
            on_progress: Called with how much was read.

        Raises:
            SnapshotNotFoundError: No snapshot has that id or name.
        """
        with contextlib.closing(AsyncApi()) as api:
            return await api.long_call(
                "POST",
                "/v1/snapshots/verify",
                VerifyReport,
                VerifyRequest(names=list(names)),
                on_progress=on_progress or ignored,
            )


def snapshot_ref(snapshot: str | SnapshotInfo) -> str:
    """Return the id or name of a snapshot that was given as its info, id or name."""
    if isinstance(snapshot, SnapshotInfo):
        return snapshot.snapshot_id
    check_text("snapshot", snapshot)
    return snapshot
