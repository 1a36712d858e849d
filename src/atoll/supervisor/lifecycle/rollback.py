"""Rolls a sandbox back to a snapshot, in place."""

from __future__ import annotations

import logging
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from atoll.errors import InvalidSpecError
from atoll.host import to_the_end
from atoll.policy import check_alive, check_scope
from atoll.snapshots import line_of
from atoll.supervisor.lifecycle.clone import Clones
from atoll.supervisor.lifecycle.holds import keep_locked
from atoll.supervisor.state.rows import SandboxRow, SnapshotRow
from atoll.supervisor.state.sandbox import Sandbox
from atoll.supervisor.state.transitions import check_action, check_plugged

if TYPE_CHECKING:
    from atoll.network import Link
    from atoll.supervisor.lifecycle.attachment import Attachment
    from atoll.supervisor.lifecycle.discard import Discards
    from atoll.supervisor.lifecycle.sandbox_links import SandboxLinks
    from atoll.supervisor.state.inventory import Inventory
    from atoll.supervisor.state.leases import Leases
    from atoll.supervisor.state.operation_log import Operations
    from atoll.supervisor.state.paths import Paths
    from atoll.supervisor.storage.volumes import Volumes
    from atoll.supervisor.tenants.quotas import TeamQuotas

_log = logging.getLogger(__name__)


@dataclass(kw_only=True, eq=False, repr=False)
class Rollback:
    """Rolls sandboxes back."""

    inventory: Inventory
    operations: Operations
    paths: Paths
    leases: Leases
    quotas: TeamQuotas
    volumes: Volumes
    clones: Clones
    attachment: Attachment
    sandbox_links: SandboxLinks
    discards: Discards

    async def roll_back(self, sandbox: Sandbox, ref: str) -> None:
        """Continue the sandbox from a snapshot's memory and disk; it keeps its id, name and addresses.

        The new machine runs before the old one ends.

        Raises:
            SnapshotNotFoundError: There is no such snapshot.
            InvalidSpecError: The snapshot is of another image, or is not in the sandbox's line.
            UnpluggedError: The sandbox is unplugged.
            VolumeNotFoundError: A volume that the snapshot mounts is gone, or belongs to another team.
            QuotaError: The quota of its team allows no more running sandboxes, or not the snapshot's limits.

        Postcondition: on any exception the sandbox is as it was; if it ran, it still runs.
        """
        snapshot = self.inventory.snapshot(ref)
        # Pin the snapshot before the wait for the lock, which another operation may hold.
        with self.inventory.pins.during(snapshot.snapshot_id, *snapshot.stack):
            async with sandbox.lock:
                await self.roll_back_locked(sandbox, ref)
                await keep_locked(self.inventory, sandbox)

    async def roll_back_locked(
        self, sandbox: Sandbox, ref: str, columns: dict[str, Any] | None = None
    ) -> None:
        """Do the work of ``roll_back``. The caller holds the sandbox's lock.

        Args:
            columns: The lease columns to set; None starts a lease unless the sandbox runs.
        """
        row = sandbox.row
        if columns is None and sandbox.running is None:
            columns = self.leases.woken(row, row.lifecycle.ttl_s)
        snapshot = self.inventory.snapshot(ref)
        check_action("rollback", sandbox.row.state, sandbox.sandbox_id)
        check_plugged("roll back", sandbox)
        _check_delegation(sandbox.row, snapshot, self.leases.clock.unix_s())
        if snapshot.image_digest != sandbox.row.image_digest:
            raise InvalidSpecError(
                f"snapshot {ref!r} was made from another image than sandbox {sandbox.row.called}",
                hint="create a new sandbox of the snapshot",
            )
        if snapshot.snapshot_id not in self._line(sandbox.row):
            raise InvalidSpecError(
                f"snapshot {ref!r} is not a snapshot of sandbox {sandbox.row.called} or of its ancestors",
                hint="create a new sandbox of the snapshot",
            )
        # The memory refers to its own mounts, which another sandbox may have made.
        self.volumes.again(snapshot.volumes, {}, sandbox.row.team)
        held = self.inventory.pins.during(snapshot.snapshot_id, *snapshot.stack, *snapshot.volume_ids)
        with held, self.quotas.running(sandbox.row, snapshot.limits):
            async with self.operations.during(sandbox.sandbox_id, "rollback"):
                await self._switch(sandbox, snapshot, columns or {})

    def _line(self, row: SandboxRow) -> set[str]:
        """The ids of the snapshots that a sandbox may be rolled back to.

        These are its own snapshots, the snapshot that it was made from, and their ancestors. Each must belong
        to the sandbox's team: the snapshots under a public template belong to the template's maker.
        """
        snapshots = self.inventory.snapshots()
        seen = {each.snapshot_id for each in snapshots if each.team == row.team}
        own = {each.snapshot_id for each in snapshots if each.sandbox_id == row.sandbox_id}
        starts = own | ({row.snapshot_id} if row.snapshot_id else set())
        parents = {each.snapshot_id: each.parent_id for each in snapshots}
        return line_of(starts, lambda each: parents.get(each) if each in seen else None)

    async def _switch(self, sandbox: Sandbox, snapshot: SnapshotRow, columns: dict[str, Any]) -> None:
        old_row, old_running = sandbox.row, sandbox.running
        checkpoint = self.paths.snapshot_checkpoint(snapshot.snapshot_id)
        fresh, running = await self.clones.clone(rolled_back(old_row, snapshot), checkpoint, snapshot.env)
        try:
            old_link: Link | None = (
                None if old_running is not None else await self.sandbox_links.waiting(sandbox)
            )
            sandbox.link = old_link
            changes = {**columns, **{name: getattr(fresh.row, name) for name in _CHANGED}}
            await self.inventory.change(
                sandbox, durable=True, state="running", napping=False, **changes, **running.columns()
            )
        except BaseException:
            await to_the_end(self.clones.undo(fresh, running))
            raise
        self.attachment.attach(sandbox, running)
        await to_the_end(self.discards.discard(sandbox, old_row, old_running, old_link, checkpoint))


_CHANGED = (
    "disk",
    "stack",
    "generation",
    "versions",
    "snapshot_id",
    "limits",
    "services",
    "engine_disk",
    "volumes",
    "reason",
    "has_memory",
)


def rolled_back(row: SandboxRow, snapshot: SnapshotRow) -> SandboxRow:
    """The row of a sandbox that continues from a snapshot, with a generation that was never used before."""
    return row.but(
        disk=next_disk(row.disk),
        stack=snapshot.stack,
        generation=max(row.generation, snapshot.generation) + 1,
        versions=snapshot.versions,
        snapshot_id=snapshot.snapshot_id,
        limits=snapshot.limits,
        services=snapshot.services,
        engine_disk=snapshot.engine_disk,
        volumes=snapshot.volumes,
        reason=None,
        has_memory=True,
    )


def _check_delegation(row: SandboxRow, snapshot: SnapshotRow, now_s: float) -> None:
    """Refuse to run a sandbox that may not run any more, or with volumes that it may not mount."""
    check_alive(row.delegation, now_s, f"roll back sandbox {row.called}", row.sandbox_id)
    if snapshot.volumes:
        check_scope(row.delegation, "volumes", "a volume of the snapshot", row.sandbox_id)


def next_disk(disk: str) -> str:
    """The next name in the series ``d1``, ``d2``, …"""
    number = re.fullmatch(r"d(\d+)", disk)
    return f"d{int(number[1]) + 1}" if number else "d1"
