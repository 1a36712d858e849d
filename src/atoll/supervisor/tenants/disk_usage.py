"""What the sandboxes, snapshots, volumes and images of a team use on the disk."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from atoll.supervisor.tenants.disk_sizes import DiskParts

if TYPE_CHECKING:
    from atoll.supervisor.state.registry import Registry
    from atoll.supervisor.state.tasks import Tasks
    from atoll.supervisor.storage.volumes import Volumes
    from atoll.supervisor.tenants.disk_sizes import DiskSizes

# A caller waits no longer than this. Then the last measurement counts, or zero if there is none.
_WAIT_S = 2.0


class TeamDiskUsage:
    """Adds up the disk usage of teams.

    A team uses the disks and memories of its sandboxes, its volumes, the memories of its snapshots, and the
    frozen layers below these, each once. Layers that another team's snapshot brings do not count. The layers
    of images that the team pulled count, each once.

    Args:
        registry: The sandboxes and snapshots.
        volumes: The volumes.
        sizes: Measures them.
        tasks: Owner of the measuring.
        image_trees: Returns the directories of the layers of images that a team pulled, which never change.
    """

    def __init__(
        self,
        registry: Registry,
        volumes: Volumes,
        sizes: DiskSizes,
        tasks: Tasks,
        *,
        image_trees: Callable[[str], set[Path]],
    ) -> None:
        self._registry = registry
        self._volumes = volumes
        self._sizes = sizes
        self._tasks = tasks
        self._image_trees = image_trees
        self._measuring: dict[str, asyncio.Task[None]] = {}

    async def bytes_of(self, team: str) -> int:
        """The bytes that a team uses, as of some seconds ago."""
        trees = await asyncio.to_thread(self._image_trees, team)
        parts = self._parts(team, trees)
        if not self._sizes.is_known(parts):
            task = self._measuring.get(team)
            if task is None or task.done():
                task = self._measuring[team] = self._tasks.watch(self._sizes.measure(parts))
            await asyncio.wait({task}, timeout=_WAIT_S)
        parts, sizes = self._parts(team, trees), self._sizes
        snapshots = sum(row.memory_bytes for row in self._registry.snapshots() if row.team == team)
        frozen = sum(sizes.of_layer(layer_id) for layer_id in parts.layers)
        images = sum(sizes.of_tree(tree) for tree in trees)
        return snapshots + frozen + images + sum(sizes.of(id_) for id_ in parts.changing)

    def _parts(self, team: str, trees: set[Path]) -> DiskParts:
        sandboxes = [one for one in self._registry.sandboxes() if one.row.team == team]
        volumes = [row.volume_id for row in self._volumes.list(team)]
        return DiskParts(
            changing=self._sizes.changing(sandboxes, volumes),
            layers=frozenset(self._layers_of(team)),
            trees=frozenset(trees),
        )

    def _layers_of(self, team: str) -> set[str]:
        snapshots = self._registry.snapshots()
        own = {id_ for one in self._registry.sandboxes() if one.row.team == team for id_ in one.row.stack}
        own |= {id_ for row in snapshots if row.team == team for id_ in row.stack}
        return own - {id_ for row in snapshots if row.team != team for id_ in row.stack}
