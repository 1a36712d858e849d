"""Finds the things that a home's sandboxes and snapshots need. Everything else may be removed."""

from __future__ import annotations

from atoll.supervisor.state.inventory import Inventory
from atoll.supervisor.state.rows import SandboxRow, SnapshotRow, Versions


def _rows(inventory: Inventory) -> list[SandboxRow | SnapshotRow]:
    return [*(sandbox.row for sandbox in inventory.all()), *inventory.snapshots()]


def versions_in_use(inventory: Inventory) -> set[Versions]:
    """The engines and agents that the machines and checkpoints were made with."""
    return {row.versions for row in _rows(inventory)}


def digests_in_use(inventory: Inventory) -> set[str]:
    """The images that sandboxes and snapshots use, including those being made."""
    return {row.image_digest for row in _rows(inventory)} | inventory.pins.ids()


def layers_in_use(inventory: Inventory) -> set[str]:
    """The frozen layers that sandboxes, snapshots, or operations in progress use or will soon use."""
    stacks = [row.stack for row in _rows(inventory)]
    standing = {layer for stack in stacks for layer in stack}
    return standing | inventory.merges.useful(stacks) | inventory.pins.ids()


def owned_ids(inventory: Inventory) -> set[str]:
    """The ids of all sandboxes and snapshots, including those being made."""
    # If erasing a killed sandbox failed, nothing owns its remains.
    sandboxes = {sandbox.sandbox_id for sandbox in inventory.sandboxes()}
    return sandboxes | {row.snapshot_id for row in inventory.snapshots()} | inventory.pins.ids()


def owned_by(inventory: Inventory, team: str) -> list[str]:
    """A team's sandboxes and snapshots, in words for people."""
    sandboxes = [f"sandbox {one.row.called}" for one in inventory.all() if one.row.team == team]
    return sandboxes + [f"snapshot {row.called}" for row in inventory.snapshots() if row.team == team]
