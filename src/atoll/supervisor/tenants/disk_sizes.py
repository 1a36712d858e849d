"""Measures the parts of a home's disk, as seldom as possible."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from atoll.errors import AtollError
from atoll.host import tree_bytes
from atoll.supervisor.machines.sandbox_plan import earlier_pages_directory

if TYPE_CHECKING:
    from atoll.snapshots import Layers
    from atoll.supervisor.state.inventory import Inventory
    from atoll.supervisor.state.paths import Paths
    from atoll.supervisor.state.sandbox import Sandbox
    from atoll.supervisor.storage.volumes import Volumes

# A measurement is valid for this long, and for this many times its own duration. Frequent requests then cost
# at most 5 % of a processor, however many files there are.
_FRESH_S = 5.0
_FRESH_TIMES = 20
_log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class DiskParts:
    """Parts of the disk: those of sandboxes and volumes by id, frozen layers, and directories of images.

    ``changing`` tells for each sandbox and volume since when it has not changed; None if it may change now.
    """

    changing: dict[str, float | None] = field(default_factory=dict)
    layers: frozenset[str] = frozenset()
    trees: frozenset[Path] = frozenset()


@dataclass(frozen=True)
class _Measure:
    size_bytes: int
    at_s: float
    took_s: float
    rests_since: float | None


@dataclass(eq=False, repr=False)
class DiskSizes:
    """Remembers the sizes of the parts of the disk, and measures changed parts.

    Measuring opens no file, follows no symlink and enters no mount, so a guest can neither mislead nor block
    it.
    """

    inventory: Inventory
    volumes: Volumes
    paths: Paths
    layers: Layers
    _trees: dict[Path, int] = field(default_factory=dict, init=False)
    _measures: dict[str, _Measure] = field(default_factory=dict, init=False)
    _frozen: dict[str, int] = field(default_factory=dict, init=False)

    def is_known(self, parts: DiskParts) -> bool:
        """Whether all of it was measured lately enough."""
        known = parts.layers <= self._frozen.keys() and parts.trees <= self._trees.keys()
        return known and not self._stale(parts)

    def changing(self, sandboxes: Iterable[Sandbox], volumes: Iterable[str]) -> dict[str, float | None]:
        """Since when these sandboxes and volumes have not changed, as ``DiskParts`` has it."""
        found = {one.sandbox_id: None if one.running is not None else one.row.changed_at for one in sandboxes}
        return found | dict.fromkeys(volumes)

    def of(self, id_: str) -> int:
        """The bytes of a sandbox without its frozen layers, or of a volume; 0 before it was measured."""
        measure = self._measures.get(id_)
        return measure.size_bytes if measure else 0

    def of_layer(self, layer_id: str) -> int:
        """The bytes of a frozen layer; 0 before it was measured."""
        return self._frozen.get(layer_id, 0)

    def of_tree(self, tree: Path) -> int:
        """The bytes of an image's directory; 0 before it was measured."""
        return self._trees.get(tree, 0)

    async def measure(self, parts: DiskParts) -> None:
        """Measure the parts whose measurement is too old."""
        for layer_id in parts.layers - self._frozen.keys():
            work = partial(self.layers.size_bytes, layer_id)
            self._frozen[layer_id] = (await asyncio.to_thread(measured, work, 0))[0]
        for tree in parts.trees - self._trees.keys():
            self._trees[tree] = (await asyncio.to_thread(measured, partial(tree_bytes, tree), 0))[0]
        volumes = self.volumes.ids()
        for id_, rests_since in self._stale(parts).items():
            before_bytes = self.of(id_)
            if id_ in volumes:
                work = partial(tree_bytes, self.paths.volume(id_))
                size_bytes, took_s = await asyncio.to_thread(measured, work, before_bytes)
            else:
                size_bytes, took_s = await self._of_sandbox(id_, before_bytes)
            self._measures[id_] = _Measure(size_bytes, time.monotonic(), took_s, rests_since)
        self._forget()
        for tree in [tree for tree in self._trees if not tree.exists()]:
            del self._trees[tree]

    async def _of_sandbox(self, sandbox_id: str, before_bytes: int) -> tuple[int, float]:
        try:
            sandbox = self.inventory.sandbox(sandbox_id)
            kept = await _kept_by_engine(sandbox)
        except (AtollError, OSError):  # it is gone
            return 0, 0.0
        work = partial(self._disk_and_memory, sandbox, kept)
        return await asyncio.to_thread(measured, work, before_bytes)

    def _disk_and_memory(self, sandbox: Sandbox, kept: int) -> int:
        row = sandbox.row
        disk = 0 if row.engine_disk else self.layers.sizes_changed(self.paths.disk(row.sandbox_id, row.disk))
        memory = self.paths.checkpoint(row.sandbox_id)
        held = tree_bytes(memory) if memory.is_dir() else 0
        if row.machine_id is not None:
            held += _shares(
                earlier_pages_directory(self.paths.disk(row.sandbox_id, row.disk), row.machine_id)
            )
        return kept + disk + held

    def _forget(self) -> None:
        """Forget the sizes of parts that no longer exist."""
        living = {one.sandbox_id for one in self.inventory.all()} | self.volumes.ids()
        for id_ in self._measures.keys() - living:
            del self._measures[id_]
        standing = {id_ for one in self.inventory.all() for id_ in one.row.stack}
        standing |= {id_ for row in self.inventory.snapshots() for id_ in row.stack}
        for layer_id in self._frozen.keys() - standing:
            del self._frozen[layer_id]

    def _stale(self, parts: DiskParts) -> dict[str, float | None]:
        """The parts that may have changed since their measurement."""
        now_s = time.monotonic()
        return {
            id_: rests_since
            for id_, rests_since in parts.changing.items()
            if not _fresh(self._measures.get(id_), rests_since, now_s)
        }


def _shares(earlier_pages: Path) -> int:
    """The bytes of files that others may share, each divided by its number of users."""
    try:
        stats = [path.lstat() for path in earlier_pages.iterdir()]
    except OSError:  # there are none, or they have just gone
        return 0
    return sum(one.st_blocks * 512 // max(1, one.st_nlink) for one in stats)


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


def measured(work: Callable[[], int], before_bytes: int) -> tuple[int, float]:
    """The result of the work and the processor time that it took.

    If it fails, the result is the earlier one.
    """
    began_s = time.thread_time()
    try:
        size_bytes = work()
    except FileNotFoundError:  # it has just been killed or dropped
        size_bytes = 0
    except OSError as error:
        _log.warning("cannot measure a part of the disk: %s", error)
        size_bytes = before_bytes
    return size_bytes, time.thread_time() - began_s
