"""The snapshots of a home."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

from atoll.protocol import VerifyRequest
from atoll.sdk._async.link import AsyncLink, ignored, ref
from atoll.types import Progress, SnapshotInfo, VerifyReport, check_text

_Snapshots = list[SnapshotInfo]


class AsyncSnapshots:
    """Stored states of sandboxes: list, look, delete. Make one with ``Sandbox.snapshot``."""

    @staticmethod
    async def list(*, sandbox: str | None = None, team: str | None = None) -> _Snapshots:
        """All snapshots of the home, oldest first, or those made of one sandbox (by id or name), or of one team."""
        wanted = {"sandbox": sandbox, "team": team}
        query = "&".join(f"{name}={ref(value)}" for name, value in wanted.items() if value is not None)
        with contextlib.closing(AsyncLink()) as link:
            return await link.call("GET", f"/v1/snapshots?{query}", list[SnapshotInfo])

    @staticmethod
    async def get(id_or_name: str) -> SnapshotInfo:
        """What is known of a snapshot.

        Raises:
            SnapshotNotFoundError: There is none with that id or name.
        """
        with contextlib.closing(AsyncLink()) as link:
            return await link.call("GET", f"/v1/snapshots/{ref(id_or_name)}", SnapshotInfo)

    @staticmethod
    async def delete(id_or_name: str) -> None:
        """Erase a snapshot.

        Raises:
            SnapshotNotFoundError: There is none with that id or name.
            InUseError: Another snapshot or a sandbox stands on it.
        """
        with contextlib.closing(AsyncLink()) as link:
            await link.delete(f"/v1/snapshots/{ref(id_or_name)}")

    @staticmethod
    async def verify(*names: str, on_progress: Callable[[Progress], Any] | None = None) -> VerifyReport:
        """Read the memories and layers of snapshots and say which files are not what was written.

        With none named, those of all snapshots, and what sandboxes stand on and sleep with. Nothing is changed: but
        what has no checksums yet gets them. Sandboxes go on meanwhile.

        Args:
            names: Ids or names.
            on_progress: Called with how much has been read.

        Raises:
            SnapshotNotFoundError: There is none with that id or name.
        """
        with contextlib.closing(AsyncLink()) as link:
            return await link.long_call(
                "POST",
                "/v1/snapshots/verify",
                VerifyReport,
                VerifyRequest(names=list(names)),
                on_progress=on_progress or ignored,
            )


def snapshot_ref(snapshot: str | SnapshotInfo) -> str:
    """The id of a snapshot that was given as its info, id or name."""
    if isinstance(snapshot, SnapshotInfo):
        return snapshot.snapshot_id
    check_text("snapshot", snapshot)
    return snapshot
