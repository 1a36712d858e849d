"""The directory trees that sandboxes and snapshots are made of: layers, images, checkpoints."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from atoll.supervisor.state.paths import Places
from atoll.supervisor.state.registry import Table
from atoll.supervisor.storage.checksums import PARTLY_BYTES
from atoll.supervisor.storage.images import ImageShelf

if TYPE_CHECKING:
    from atoll.snapshots import Layers


@dataclass(frozen=True, kw_only=True)
class StoredTrees:
    """Where each of them lies.

    Args:
        table: The sandboxes and snapshots.
        places: Where checkpoints lie.
        layers: The layers of disks.
        images: The images below them; None where sandboxes make mount points in them, so that they change.
    """

    table: Table
    places: Places
    layers: Layers
    images: ImageShelf | None

    def all(self) -> set[Path]:
        """Those that never change, and that no checksum of their own covers as a whole."""
        table, layers = self.table, self.layers
        stacks = [*(one.row.stack for one in table.sandboxes()), *(row.stack for row in table.snapshots())]
        needed = {layers.path(layer_id) for stack in stacks for layer_id in stack}
        if self.images is not None:
            needed |= self.images.stood_on()
        # A checkpoint gets its checksum when it is made, but a big one's does not cover all of it.
        big = (row.snapshot_id for row in table.snapshots() if row.memory_bytes > PARTLY_BYTES)
        return needed | {self.places.snapshot_checkpoint(snapshot_id) for snapshot_id in big}
