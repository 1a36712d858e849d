"""What the sandboxes and snapshots of a home need of it: all else is nobody's."""

from __future__ import annotations

from atoll.supervisor.state.registry import Table
from atoll.supervisor.state.rows import SandboxRow, SnapshotRow, Versions


def _rows(table: Table) -> list[SandboxRow | SnapshotRow]:
    return [*(sandbox.row for sandbox in table.all()), *table.snapshots()]


def versions_in_use(table: Table) -> set[Versions]:
    """The engines and agents that a machine or a checkpoint was made with."""
    return {row.versions for row in _rows(table)}


def digests_in_use(table: Table) -> set[str]:
    """The images that a sandbox or snapshot stands on, those in the making included."""
    return {row.image_digest for row in _rows(table)} | table.holds.ids()


def layers_in_use(table: Table) -> set[str]:
    """The frozen layers that a sandbox, a snapshot or something in the making stands on, or soon will."""
    stacks = [row.stack for row in _rows(table)]
    standing = {layer for stack in stacks for layer in stack}
    return standing | table.merges.useful(stacks) | table.holds.ids()


def owned_ids(table: Table) -> set[str]:
    """The ids of all sandboxes and snapshots, those in the making included."""
    # What is left of a killed one, when its erasing failed, is nobody's.
    sandboxes = {sandbox.sandbox_id for sandbox in table.sandboxes()}
    return sandboxes | {row.snapshot_id for row in table.snapshots()} | table.holds.ids()


def owned_by(table: Table, team: str) -> list[str]:
    """What sandboxes and snapshots a team has, in words for people."""
    sandboxes = [f"sandbox {one.sandbox_id}" for one in table.all() if one.row.team == team]
    return sandboxes + [f"snapshot {row.snapshot_id}" for row in table.snapshots() if row.team == team]
