"""Lists the directory trees that sandboxes and snapshots are made of: layers, images, checkpoints."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from atoll.supervisor.integrity.checksums import PARTLY_BYTES
from atoll.supervisor.state.paths import Paths
from atoll.supervisor.state.registry import Registry
from atoll.supervisor.storage.images import SupervisorImages

if TYPE_CHECKING:
    from atoll.snapshots import Layers


@dataclass(frozen=True, kw_only=True)
class StoredTrees:
    """Finds the stored trees of a home.

    Args:
        registry: The sandboxes and snapshots.
        paths: Where checkpoints are.
        layers: The layers of disks.
        images: The images below them.
    """

    registry: Registry
    paths: Paths
    layers: Layers
    images: SupervisorImages

    def all(self) -> set[Path]:
        """The trees that never change, and that no checksum of their own covers completely."""
        registry, layers = self.registry, self.layers
        stacks = [
            *(one.row.stack for one in registry.sandboxes()),
            *(row.stack for row in registry.snapshots()),
        ]
        needed = {layers.path(layer_id) for stack in stacks for layer_id in stack} | self.images.stood_on()
        # A checkpoint gets its checksum when it is made, but a big one's does not cover all of it.
        big = (row.snapshot_id for row in registry.snapshots() if row.memory_bytes > PARTLY_BYTES)
        return needed | {self.paths.snapshot_checkpoint(snapshot_id) for snapshot_id in big}
