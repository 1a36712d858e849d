"""Recovers crashed sandboxes at their next use, as ``on_crash`` says."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Literal

from atoll.errors import SandboxCrashedError
from atoll.snapshots import line_of
from atoll.types import Recovery

if TYPE_CHECKING:
    from atoll.supervisor.lifecycle.restore import Restores
    from atoll.supervisor.lifecycle.rollback import Rollback
    from atoll.supervisor.lifecycle.start import Starts
    from atoll.supervisor.state.leases import Columns
    from atoll.supervisor.state.paths import Paths
    from atoll.supervisor.state.registry import Registry
    from atoll.supervisor.state.rows import SandboxRow, SnapshotRow
    from atoll.supervisor.state.sandbox import Sandbox

_How = Literal["disk", "snapshot", "checkpoint"]


class CrashRecovery:
    """Decides how crashed sandboxes go on. The caller holds the sandbox's lock.

    Args:
        registry: The sandboxes and snapshots.
        paths: Where checkpoints are.
        rollback: Rolls sandboxes back in place.
        restores: Restores sandboxes from their newest checkpoint.
        starts: Boots sandboxes from their disks.
    """

    def __init__(
        self, *, registry: Registry, paths: Paths, rollback: Rollback, restores: Restores, starts: Starts
    ) -> None:
        self._registry = registry
        self._paths = paths
        self._rollback = rollback
        self._restores = restores
        self._starts = starts

    async def revive(self, sandbox: Sandbox, columns: Columns, *, by_hand: bool) -> None:
        """Make a crashed sandbox run again, with the lease in ``columns``.

        Args:
            columns: The columns to change in its row with it.
            by_hand: Whether a user asked for exactly that.

        Raises:
            SandboxCrashedError: It stays crashed until a user resumes it or rolls it back.
        """
        wanted = sandbox.row.on_crash
        if wanted == "stop" and not by_hand:
            raise SandboxCrashedError(
                f"sandbox {sandbox.sandbox_id} crashed ({sandbox.row.reason}) and waits for a decision",
                hint="`atoll resume` boots it from its disk, `atoll rollback` goes back to a snapshot",
                sandbox_id=sandbox.sandbox_id,
            )
        newest = newest_snapshot(sandbox.row, self._registry.snapshots()) if wanted == "rollback" else None
        if newest is not None:
            told = self._told(sandbox, columns, "snapshot")
            await self._rollback.roll_back_locked(sandbox, newest.snapshot_id, told)
            return
        told = self._told(sandbox, columns, "checkpoint" if sandbox.row.engine_disk else "disk")
        if sandbox.row.engine_disk and self._paths.checkpoint(sandbox.sandbox_id).is_dir():
            await self._restores.restore(sandbox, told)
        else:
            await self._starts.boot(sandbox, told)

    def _told(self, sandbox: Sandbox, columns: Columns, how: _How) -> Columns:
        """The columns and the message for users: memory is never lost silently."""
        recovery = Recovery(
            at=self._registry.now_s(), how=how, reason=sandbox.row.reason or "the reason is unknown"
        )
        return {**columns, "recovered": recovery}


def newest_snapshot(of: SandboxRow, snapshots: Iterable[SnapshotRow]) -> SnapshotRow | None:
    """The newest snapshot of a sandbox; None if there is none.

    Of one that has taken over another's state, only those that this state has passed count.
    """
    rows = {row.snapshot_id: row for row in snapshots}
    made = [row for row in rows.values() if row.sandbox_id in (of.sandbox_id, *of.promoted)]
    if of.promoted:
        passed = line_of(
            [of.snapshot_id] if of.snapshot_id else [],
            lambda each: rows[each].parent_id if each in rows else None,
        )
        made = [row for row in made if row.snapshot_id in passed]
    return max(made, key=lambda row: row.created_at, default=None)
