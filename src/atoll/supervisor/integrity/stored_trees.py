"""Lists the memories, layers and images of sandboxes and snapshots, with their users."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from atoll.supervisor.integrity.checksums import PARTLY_BYTES
from atoll.supervisor.state.inventory import Inventory
from atoll.supervisor.state.paths import Paths
from atoll.supervisor.state.rows import SandboxRow, SnapshotRow
from atoll.supervisor.storage.images import SupervisorImages

if TYPE_CHECKING:
    from atoll.snapshots import Layers

_Row = SandboxRow | SnapshotRow


class StoredMemory(NamedTuple):
    """A memory, and whether it is still to be kept.

    ``whole`` says that it is too big for its own checksums to cover all of it, so that the tree's may.
    """

    name: str
    place: Path
    kept: Callable[[], bool]
    whole: bool = False


@dataclass(frozen=True, kw_only=True)
class StoredTrees:
    """Finds the trees that a home stores for its sandboxes and snapshots.

    Args:
        paths: Where checkpoints are.
        layers: The layers of disks.
        images: The images below them.
    """

    inventory: Inventory
    paths: Paths
    layers: Layers
    images: SupervisorImages

    def rows(self) -> Sequence[_Row]:
        """The snapshots and the sandboxes."""
        return [*self.inventory.snapshots(), *(one.row for one in self.inventory.sandboxes())]

    def memories(self, rows: Iterable[_Row]) -> list[StoredMemory]:
        """The memories of snapshots and of sleeping sandboxes."""
        return [self._memory(row) for row in rows if isinstance(row, SnapshotRow) or _sleeps(row)]

    def checkpoints(self) -> list[Path]:
        """Where snapshots and sandboxes have their checkpoints, those that have one now."""
        return [self._checkpoint(row) for row in self.rows()]

    def layer_users(self, rows: Iterable[_Row]) -> dict[str, list[str]]:
        """The ids of layers, each with its users."""
        return _users((layer_id, row) for row in rows for layer_id in row.stack)

    def image_users(self) -> dict[str, list[str]]:
        """The digests of images, each with its users."""
        return _users((row.image_digest, row) for row in self.rows())

    def all(self) -> set[Path]:
        """The trees that never change, and that no checksum of their own covers completely."""
        rows = self.rows()
        layers = {self.layers.path(layer_id) for row in rows for layer_id in row.stack}
        # A checkpoint gets its checksum when it is made, but a big one's does not cover all of it.
        big = {memory.place for memory in self.memories(rows) if memory.whole}
        return layers | self.images.stood_on() | big

    def _memory(self, row: _Row) -> StoredMemory:
        place = self._checkpoint(row)
        if isinstance(row, SnapshotRow):
            kept = partial(self._has, row.snapshot_id)
            return StoredMemory(row.called, place, kept, whole=row.memory_bytes > PARTLY_BYTES)
        return StoredMemory(row.called, place, partial(self._sleeps_on, row))

    def _checkpoint(self, row: _Row) -> Path:
        if isinstance(row, SnapshotRow):
            return self.paths.snapshot_checkpoint(row.snapshot_id)
        return self.paths.checkpoint(row.sandbox_id)

    def _has(self, snapshot_id: str) -> bool:
        return any(row.snapshot_id == snapshot_id for row in self.inventory.snapshots())

    def _sleeps_on(self, asleep: SandboxRow) -> bool:
        rows = (one.row for one in self.inventory.sandboxes() if one.sandbox_id == asleep.sandbox_id)
        return any(_sleeps(row) and row.generation == asleep.generation for row in rows)


def _sleeps(row: SandboxRow) -> bool:
    return row.state == "suspended" and row.has_memory


def _users(needed: Iterable[tuple[str, _Row]]) -> dict[str, list[str]]:
    users: dict[str, list[str]] = {}
    for key, row in needed:
        users.setdefault(key, []).append(row.called)
    return users
