"""What the sandboxes and snapshots of a home need of it: all else is nobody's."""

from __future__ import annotations

from atoll.supervisor.state.registry import Registry
from atoll.supervisor.state.rows import SandboxRow, SnapshotRow, Versions


def _rows(registry: Registry) -> list[SandboxRow | SnapshotRow]:
    return [*(sandbox.row for sandbox in registry.all()), *registry.snapshots()]


def versions_in_use(registry: Registry) -> set[Versions]:
    """The engines and agents that a machine or a checkpoint was made with."""
    return {row.versions for row in _rows(registry)}


def digests_in_use(registry: Registry) -> set[str]:
    """The images that a sandbox or snapshot stands on, those in the making included."""
    return {row.image_digest for row in _rows(registry)} | registry.pins.ids()


def layers_in_use(registry: Registry) -> set[str]:
    """The frozen layers that a sandbox, a snapshot or something in the making stands on, or soon will."""
    stacks = [row.stack for row in _rows(registry)]
    standing = {layer for stack in stacks for layer in stack}
    return standing | registry.merges.useful(stacks) | registry.pins.ids()


def owned_ids(registry: Registry) -> set[str]:
    """The ids of all sandboxes and snapshots, those in the making included."""
    # What is left of a killed one, when its erasing failed, is nobody's.
    sandboxes = {sandbox.sandbox_id for sandbox in registry.sandboxes()}
    return sandboxes | {row.snapshot_id for row in registry.snapshots()} | registry.pins.ids()


def owned_by(registry: Registry, team: str) -> list[str]:
    """What sandboxes and snapshots a team has, in words for people."""
    sandboxes = [f"sandbox {one.sandbox_id}" for one in registry.all() if one.row.team == team]
    return sandboxes + [f"snapshot {row.snapshot_id}" for row in registry.snapshots() if row.team == team]
