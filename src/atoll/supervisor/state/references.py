"""Finds the things that a home's sandboxes and snapshots need. Everything else may be removed."""

from __future__ import annotations

from atoll.supervisor.state.registry import Registry
from atoll.supervisor.state.rows import SandboxRow, SnapshotRow, Versions


def _rows(registry: Registry) -> list[SandboxRow | SnapshotRow]:
    return [*(sandbox.row for sandbox in registry.all()), *registry.snapshots()]


def versions_in_use(registry: Registry) -> set[Versions]:
    """The engines and agents that the machines and checkpoints were made with."""
    return {row.versions for row in _rows(registry)}


def digests_in_use(registry: Registry) -> set[str]:
    """The images that sandboxes and snapshots use, including those being made."""
    return {row.image_digest for row in _rows(registry)} | registry.pins.ids()


def layers_in_use(registry: Registry) -> set[str]:
    """The frozen layers that sandboxes, snapshots, or operations in progress use or will soon use."""
    stacks = [row.stack for row in _rows(registry)]
    standing = {layer for stack in stacks for layer in stack}
    return standing | registry.merges.useful(stacks) | registry.pins.ids()


def owned_ids(registry: Registry) -> set[str]:
    """The ids of all sandboxes and snapshots, including those being made."""
    # If erasing a killed sandbox failed, nothing owns its remains.
    sandboxes = {sandbox.sandbox_id for sandbox in registry.sandboxes()}
    return sandboxes | {row.snapshot_id for row in registry.snapshots()} | registry.pins.ids()


def owned_by(registry: Registry, team: str) -> list[str]:
    """A team's sandboxes and snapshots, in words for people."""
    sandboxes = [f"sandbox {one.row.called}" for one in registry.all() if one.row.team == team]
    return sandboxes + [f"snapshot {row.called}" for row in registry.snapshots() if row.team == team]
