"""Measures what the sandboxes, snapshots, volumes and images of a team use on the disk."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from atoll.errors import AtollError
from atoll.host import tree_bytes

if TYPE_CHECKING:
    from atoll.snapshots import Layers
    from atoll.supervisor.state.paths import Paths
    from atoll.supervisor.state.registry import Registry
    from atoll.supervisor.state.sandbox import Sandbox
    from atoll.supervisor.state.tasks import Tasks
    from atoll.supervisor.storage.volumes import Volumes

# A measurement is valid for this long, and for this many times as long as it took: frequent requests then
# cost at most 5 % of a processor, however many files there are.
_FRESH_S = 5.0
_FRESH_TIMES = 20
# A caller waits no longer than this. Then the last measurement counts, or zero if there is none.
_WAIT_S = 2.0
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class _Measure:
    size_bytes: int
    at_s: float
    took_s: float
    rests_since: float | None


class TeamDiskUsage:
    """Measures the disk usage of teams, as seldom as possible.

    A team uses the disks and memories of its sandboxes, its volumes, the memories of its snapshots, and the
    frozen layers below these, each once. Layers that another team's snapshot brings do not count. The layers
    of images that the team pulled count, each once.

    Args:
        registry: The sandboxes and snapshots.
        volumes: The volumes.
        paths: Where sandboxes and volumes are.
        layers: Measures layers.
        tasks: Owner of the measuring.
        image_trees: Returns the directories of the layers of images that a team pulled, which never change.
    """

    def __init__(
        self,
        registry: Registry,
        volumes: Volumes,
        paths: Paths,
        layers: Layers,
        tasks: Tasks,
        *,
        image_trees: Callable[[str], set[Path]],
    ) -> None:
        self._registry = registry
        self._volumes = volumes
        self._paths = paths
        self._layers = layers
        self._tasks = tasks
        self._image_trees = image_trees
        self._trees: dict[Path, int] = {}
        self._measures: dict[str, _Measure] = {}
        self._frozen: dict[str, int] = {}
        self._measuring: dict[str, asyncio.Task[None]] = {}

    async def bytes_of(self, team: str) -> int:
        """The bytes that a team uses, as of some seconds ago."""
        trees = await asyncio.to_thread(self._image_trees, team)
        if self._stale(team) or self._unknown(team) or trees - self._trees.keys():
            task = self._measuring.get(team)
            if task is None or task.done():
                task = self._measuring[team] = self._tasks.watch(self._measure(team, trees))
            await asyncio.wait({task}, timeout=_WAIT_S)
        measures = (self._measures.get(id_) for id_ in self._changing(team))
        snapshots = sum(row.memory_bytes for row in self._registry.snapshots() if row.team == team)
        frozen = sum(self._frozen.get(layer_id, 0) for layer_id in self._layers_of(team))
        images = sum(self._trees.get(tree, 0) for tree in trees)
        return snapshots + frozen + images + sum(measure.size_bytes for measure in measures if measure)

    async def _measure(self, team: str, trees: set[Path]) -> None:
        for layer_id in self._unknown(team):
            measured = await asyncio.to_thread(_measured, partial(self._layers.size_bytes, layer_id), 0)
            self._frozen[layer_id] = measured[0]
        for tree in trees - self._trees.keys():
            self._trees[tree] = (await asyncio.to_thread(_measured, partial(tree_bytes, tree), 0))[0]
        volumes = {row.volume_id for row in self._volumes.list(team)}
        for id_, rests_since in self._stale(team).items():
            before = self._measures.get(id_)
            before_bytes = before.size_bytes if before else 0
            if id_ in volumes:
                work = partial(tree_bytes, self._paths.volume(id_))
                size_bytes, took_s = await asyncio.to_thread(_measured, work, before_bytes)
            else:
                size_bytes, took_s = await self._of_sandbox(id_, before_bytes)
            self._measures[id_] = _Measure(size_bytes, time.monotonic(), took_s, rests_since)
        self._forget()
        for tree in [tree for tree in self._trees if not tree.exists()]:
            del self._trees[tree]

    async def _of_sandbox(self, sandbox_id: str, before_bytes: int) -> tuple[int, float]:
        try:
            sandbox = self._registry.sandbox(sandbox_id)
            kept = await _kept_by_engine(sandbox)
        except (AtollError, OSError):  # it is gone
            return 0, 0.0
        work = partial(self._disk_and_memory, sandbox, kept)
        return await asyncio.to_thread(_measured, work, before_bytes)

    def _disk_and_memory(self, sandbox: Sandbox, kept: int) -> int:
        row = sandbox.row
        disk = (
            0 if row.engine_disk else self._layers.sizes_changed(self._paths.disk(row.sandbox_id, row.disk))
        )
        memory = self._paths.checkpoint(row.sandbox_id)
        return kept + disk + (tree_bytes(memory) if memory.is_dir() else 0)

    def _forget(self) -> None:
        """Forget the sizes of what no longer exists."""
        living = {one.sandbox_id for one in self._registry.all()} | {
            row.volume_id for row in self._volumes.list()
        }
        for id_ in self._measures.keys() - living:
            del self._measures[id_]
        standing = {id_ for one in self._registry.all() for id_ in one.row.stack}
        standing |= {id_ for row in self._registry.snapshots() for id_ in row.stack}
        for layer_id in self._frozen.keys() - standing:
            del self._frozen[layer_id]

    def _changing(self, team: str) -> dict[str, float | None]:
        """Ids of what may change, each with the time since which it has not; None if it may change now."""
        sandboxes = [one for one in self._registry.sandboxes() if one.row.team == team]
        found = {one.sandbox_id: None if one.running is not None else one.row.changed_at for one in sandboxes}
        return found | {row.volume_id: None for row in self._volumes.list(team)}

    def _stale(self, team: str) -> dict[str, float | None]:
        """What may have changed since it was measured, as in ``_changing``."""
        now_s = time.monotonic()
        return {
            id_: rests_since
            for id_, rests_since in self._changing(team).items()
            if not _fresh(self._measures.get(id_), rests_since, now_s)
        }

    def _unknown(self, team: str) -> list[str]:
        return [layer_id for layer_id in self._layers_of(team) if layer_id not in self._frozen]

    def _layers_of(self, team: str) -> set[str]:
        snapshots = self._registry.snapshots()
        own = {id_ for one in self._registry.sandboxes() if one.row.team == team for id_ in one.row.stack}
        own |= {id_ for row in snapshots if row.team == team for id_ in row.stack}
        return own - {id_ for row in snapshots if row.team != team for id_ in row.stack}


async def _kept_by_engine(sandbox: Sandbox) -> int:
    """Bytes of a running sandbox's disk that the engine keeps."""
    if not sandbox.row.engine_disk or sandbox.running is None:
        return 0
    return (await sandbox.running.machine.stats()).disk_bytes or 0


def _fresh(measure: _Measure | None, rests_since: float | None, now_s: float) -> bool:
    if measure is None:
        return False
    if rests_since is not None and measure.rests_since == rests_since:
        return True
    return now_s - measure.at_s <= max(_FRESH_S, _FRESH_TIMES * measure.took_s)


def _measured(work: Callable[[], int], before_bytes: int) -> tuple[int, float]:
    """The result of the work and the processor time that it took.

    If it fails, the result is the earlier one.
    """
    began_s = time.thread_time()
    try:
        size_bytes = work()
    except FileNotFoundError:  # it has just been killed or dropped
        size_bytes = 0
    except OSError as error:
        _log.warning("cannot measure a part of a team's disk: %s", error)
        size_bytes = before_bytes
    return size_bytes, time.thread_time() - began_s
