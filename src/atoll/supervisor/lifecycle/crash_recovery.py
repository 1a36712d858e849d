"""Recovers crashed sandboxes as ``on_crash`` says."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from atoll.errors import SandboxCrashedError
from atoll.snapshots import line_of
from atoll.types import Recovery

if TYPE_CHECKING:
    from atoll.supervisor.lifecycle.restore import Restores
    from atoll.supervisor.lifecycle.rollback import Rollback
    from atoll.supervisor.lifecycle.start import Starts
    from atoll.supervisor.state.inventory import Inventory
    from atoll.supervisor.state.leases import Columns
    from atoll.supervisor.state.paths import Paths
    from atoll.supervisor.state.rows import SandboxRow, SnapshotRow
    from atoll.supervisor.state.sandbox import Sandbox

# A crash so soon after a recovery may have the same cause.
_SOON_S = 600.0
_How = Literal["disk", "snapshot", "checkpoint"]


@dataclass(kw_only=True, eq=False, repr=False)
class CrashRecovery:
    """Decides how crashed sandboxes go on. The caller holds the sandbox's lock."""

    inventory: Inventory
    paths: Paths
    rollback: Rollback
    restores: Restores
    starts: Starts

    async def revive(
        self, sandbox: Sandbox, columns: Columns, *, by_hand: bool, automatic: bool = False
    ) -> None:
        """Make a crashed sandbox run again, with the lease in ``columns``.

        Args:
            columns: The columns to change in its row with it.
            by_hand: Whether a user asked for exactly that.
            automatic: Whether nobody asked for anything.

        Raises:
            SandboxCrashedError: It stays crashed until a user resumes it or rolls it back.
        """
        wanted = sandbox.row.on_crash
        if wanted == "stop" and not by_hand:
            raise SandboxCrashedError(
                f"sandbox {sandbox.row.called} crashed ({sandbox.row.reason}) and waits for a decision",
                hint="`atoll resume` boots it from its disk, `atoll rollback` goes back to a snapshot",
                sandbox_id=sandbox.sandbox_id,
            )
        kept = self.inventory.snapshots(forgotten=False)
        newest = newest_snapshot(sandbox.row, kept) if wanted == "rollback" else None
        if newest is not None:
            told = self._told(sandbox, columns, "snapshot", automatic, newest)
            await self.rollback.roll_back_locked(sandbox, newest.snapshot_id, told)
            return
        told = self._told(sandbox, columns, "checkpoint" if sandbox.row.engine_disk else "disk", automatic)
        if sandbox.row.engine_disk and self.paths.checkpoint(sandbox.sandbox_id).is_dir():
            await self.restores.restore(sandbox, told)
        else:
            await self.starts.boot(sandbox, told)

    def _told(
        self,
        sandbox: Sandbox,
        columns: Columns,
        how: _How,
        automatic: bool,
        snapshot: SnapshotRow | None = None,
    ) -> Columns:
        """The columns and the message for users: memory is never lost silently."""
        row = sandbox.row
        made_at = snapshot.created_at if snapshot else None
        if how == "checkpoint":
            with suppress(OSError):
                made_at = self.paths.checkpoint(sandbox.sandbox_id).stat().st_mtime
        if how == "disk":
            age_s: float | None = 0.0
        else:
            age_s = None if made_at is None else max(0.0, crashed_at(row) - made_at)
        recovery = Recovery(
            at=self.inventory.now_s(),
            how=how,
            reason=row.reason or "the reason is unknown",
            snapshot_id=snapshot.snapshot_id if snapshot else None,
            age_s=age_s,
            automatic=automatic,
            times=crashes_in_a_row(row) + 1,
        )
        return {**columns, "recovered": recovery}


def crashed_at(row: SandboxRow) -> float:
    """When a crashed sandbox stopped, in Unix seconds."""
    return row.changed_at if row.stopped_at is None else row.stopped_at


def crashes_in_a_row(row: SandboxRow) -> int:
    """How often a crashed sandbox was recovered before, and crashed again soon after."""
    recovered = row.recovered
    return 0 if recovered is None or crashed_at(row) - recovered.at > _SOON_S else recovered.times


def newest_snapshot(of: SandboxRow, snapshots: Iterable[SnapshotRow]) -> SnapshotRow | None:
    """The newest snapshot of a sandbox; None if there is none.

    If the sandbox has taken over another's state, only snapshots in the history of that state count.
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
