"""The disk usage of a team: its sandboxes, snapshots, volumes and images."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from atoll.supervisor.tenants.disk_sizes import DiskParts

if TYPE_CHECKING:
    from atoll.supervisor.state.inventory import Inventory
    from atoll.supervisor.state.tasks import Tasks
    from atoll.supervisor.storage.volumes import Volumes
    from atoll.supervisor.tenants.disk_sizes import DiskSizes

# A caller waits no longer than this. Then the last measurement counts, or zero if there is none.
_WAIT_S = 2.0


@dataclass(eq=False, repr=False)
class TeamDiskUsage:
    """Adds up the disk usage of teams.

    A team uses the disks and memories of its sandboxes, its volumes, the memories of its snapshots, and the
    frozen layers below these, each once. Layers that another team's snapshot brings do not count. The layers
    of images that the team pulled count, each once.

    Args:
        image_trees: Returns the layers of images that a team pulled, as directories, which never change.
    """

    inventory: Inventory
    volumes: Volumes
    sizes: DiskSizes
    tasks: Tasks
    _: KW_ONLY
    image_trees: Callable[[str], set[Path]]
    _measuring: dict[str, asyncio.Task[None]] = field(default_factory=dict, init=False)

    async def bytes_of(self, team: str) -> int:
        """The bytes that a team uses, as of some seconds ago."""
        trees = await asyncio.to_thread(self.image_trees, team)
        parts = self._parts(team, trees)
        if not self.sizes.is_known(parts):
            task = self._measuring.get(team)
            if task is None or task.done():
                task = self._measuring[team] = self.tasks.watch(self.sizes.measure(parts))
            await asyncio.wait({task}, timeout=_WAIT_S)
        parts, sizes = self._parts(team, trees), self.sizes
        snapshots = sum(row.memory_bytes for row in self.inventory.snapshots() if row.team == team)
        frozen = sum(sizes.of_layer(layer_id) for layer_id in parts.layers)
        images = sum(sizes.of_tree(tree) for tree in trees)
        return snapshots + frozen + images + sum(sizes.of(id_) for id_ in parts.changing)

    def _parts(self, team: str, trees: set[Path]) -> DiskParts:
        sandboxes = [one for one in self.inventory.sandboxes() if one.row.team == team]
        volumes = [row.volume_id for row in self.volumes.list(team)]
        return DiskParts(
            changing=self.sizes.changing(sandboxes, volumes),
            layers=frozenset(self._layers_of(team)),
            trees=frozenset(trees),
        )

    def _layers_of(self, team: str) -> set[str]:
        snapshots = self.inventory.snapshots()
        own = {id_ for one in self.inventory.sandboxes() if one.row.team == team for id_ in one.row.stack}
        own |= {id_ for row in snapshots if row.team == team for id_ in row.stack}
        return own - {id_ for row in snapshots if row.team != team for id_ in row.stack}
