"""Finds and removes the leftovers of a crash on the host, which nothing owns."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from atoll.errors import AtollError
from atoll.host import Mounts, kill_process, mounts_below, start_ticks, tree_bytes
from atoll.protocol import Leftover
from atoll.supervisor.state.references import layers_in_use, owned_ids, versions_in_use
from atoll.supervisor.storage.trash import ASIDE

if TYPE_CHECKING:
    from atoll.host import Cgroup, CgroupRoot
    from atoll.snapshots import Layers
    from atoll.supervisor.machines.running_machines import RunningMachines
    from atoll.supervisor.state.inventory import Inventory
    from atoll.supervisor.state.paths import Paths
    from atoll.supervisor.storage.binaries import Programs
    from atoll.supervisor.storage.images import SupervisorImages
    from atoll.supervisor.storage.layer_gc import LayerGC
    from atoll.supervisor.storage.trash import Trash
    from atoll.supervisor.storage.volumes import Volumes

_PROC = Path("/proc")
_log = logging.getLogger(__name__)


class _Found(msgspec.Struct, frozen=True):
    """A leftover and how to remove it. ``is_owned`` tells whether something owns it after all."""

    leftover: Leftover
    path: Path
    is_owned: Callable[[], bool]
    pid: int = 0
    ticks: int = 0
    machine_id: str = ""


@dataclass(kw_only=True, eq=False, repr=False)
class LeftoverCollector:
    """Finds and removes leftovers, which nothing owns.

    Args:
        pool_ids: The sandbox ids of warm machines.
    """

    inventory: Inventory
    paths: Paths
    programs: Programs
    images: SupervisorImages
    volumes: Volumes
    layers: Layers
    layer_gc: LayerGC
    trash: Trash
    running_machines: RunningMachines
    pool_ids: Callable[[], set[str]]
    cgroups: CgroupRoot | None

    async def find(self) -> list[Leftover]:
        """All leftovers. Removes nothing."""
        return [found.leftover for found in await self._look(self._all)]

    async def collect(self, *, images: bool = False, wait: bool = True) -> list[Leftover]:
        """Remove all leftovers, and return them.

        Args:
            images: Also remove images that lost their name, layers and downloads: users decide when those go.
            wait: Return only when everything is erased, and not as soon as it is moved away.
        """
        removed = []
        # Search for each kind once the earlier ones are gone: a mount is only free when its process has
        # ended.
        kinds = [self._processes, self._mounts, self._cgroup_names, self._directories]
        for kind in [*kinds, self._unneeded_images] if images else kinds:
            for found in await self._look(kind):
                try:
                    if not found.is_owned():
                        await self._remove(found)
                        removed.append(found.leftover)
                except (AtollError, OSError) as error:
                    _log.warning("cannot remove %s: %s", found.path, error)
        if wait:
            await self.trash.settle()
        return removed

    @staticmethod
    async def _look(kind: Callable[[], Iterator[_Found]]) -> list[_Found]:
        # New things may be made while the thread searches. Only here, on the event loop, nothing changes in
        # between.
        return [found for found in await asyncio.to_thread(_listed, kind) if not found.is_owned()]

    def _all(self) -> Iterator[_Found]:
        yield from self._processes()
        yield from self._mounts()
        yield from self._cgroup_names()
        yield from self._directories()
        yield from self._unneeded_images()

    def _unneeded_images(self) -> Iterator[_Found]:
        for path in self.images.unneeded():
            leftover = Leftover(kind="image", name=str(path), size_bytes=tree_bytes(path))
            yield _Found(leftover, path, _is_never)

    def _processes(self) -> Iterator[_Found]:
        prefix = os.fsencode(self.paths.machines) + b"/"
        for entry in _PROC.iterdir():
            if not entry.name.isdigit():
                continue
            try:
                arguments = (entry / "cmdline").read_bytes()
            except OSError:
                continue
            _, found, rest = arguments.partition(prefix)
            machine_id = os.fsdecode(rest[:20])
            ticks = start_ticks(int(entry.name)) if found else None
            if ticks is not None:
                leftover = Leftover(kind="process", name=f"{entry.name} of machine {machine_id}")
                yield _Found(
                    leftover, entry, self._runs(machine_id), int(entry.name), ticks, machine_id=machine_id
                )

    def _mounts(self) -> Iterator[_Found]:
        roots = self.paths.roots.resolve()
        for point in mounts_below(roots):
            if point != roots:
                machine_id = point.relative_to(roots).parts[0]
                yield _Found(Leftover(kind="mount", name=str(point)), point, self._runs(machine_id))
        for point in mounts_below(self.paths.sandboxes):
            yield _Found(Leftover(kind="mount", name=str(point)), point, self._mounted(point))

    def _cgroup_names(self) -> Iterator[_Found]:
        for name in self.cgroups.names() if self.cgroups else ():
            yield _Found(Leftover(kind="cgroup", name=name), Path(name), self._runs(name))

    def _directories(self) -> Iterator[_Found]:
        paths = self.paths
        for parent in (paths.sandboxes, paths.snapshots, paths.forks, paths.forks_pages):
            yield from self._unowned(parent, self._ids)
        yield from self._unowned(paths.volumes, self._volume_ids)
        yield from self._unowned(paths.machines, self._machine_ids)
        for layer_id in set(self.layers.ids()) - layers_in_use(self.inventory):
            size = self.layers.size_bytes(layer_id)
            leftover = Leftover(kind="directory", name=f"layers/{layer_id}", size_bytes=size)
            yield _Found(leftover, Path("layers") / layer_id, self._stood_on(layer_id))
        for path in self.programs.unneeded(versions_in_use(self.inventory)):
            leftover = Leftover(kind="directory", name=str(path), size_bytes=tree_bytes(path))
            yield _Found(leftover, path, self._used(path))

    def _unowned(self, parent: Path, owned: Callable[[], set[str]]) -> Iterator[_Found]:
        now = owned()
        for entry in sorted(parent.iterdir()) if parent.exists() else ():
            # A directory that is being erased right now is not a leftover.
            ids = {entry.name, entry.name.removeprefix(ASIDE)}
            if ids.isdisjoint(now):
                leftover = Leftover(kind="directory", name=str(entry), size_bytes=_size_bytes(entry))
                yield _Found(leftover, entry, partial(_meet, ids, owned))

    def _ids(self) -> set[str]:
        return owned_ids(self.inventory) | self.pool_ids()

    def _volume_ids(self) -> set[str]:
        # Directories of volumes that the database has lost are no leftovers: their files exist nowhere else.
        return self.volumes.ids() | self.volumes.kept_ids() | self.inventory.pins.ids()

    def _machine_ids(self) -> set[str]:
        return self.running_machines.machine_ids() | self.inventory.pins.ids()

    def _runs(self, machine_id: str) -> Callable[[], bool]:
        return lambda: machine_id in self.running_machines.machine_ids()

    def _mounted(self, point: Path) -> Callable[[], bool]:
        return lambda: any(point.is_relative_to(disk) for disk in self.running_machines.disks())

    def _stood_on(self, layer_id: str) -> Callable[[], bool]:
        return lambda: layer_id in layers_in_use(self.inventory)

    def _used(self, program: Path) -> Callable[[], bool]:
        return lambda: program not in self.programs.unneeded(versions_in_use(self.inventory))

    def _find_cgroup(self, name: str) -> Cgroup | None:
        return self.cgroups.find(name) if self.cgroups else None

    async def _remove(self, found: _Found) -> None:
        kind = found.leftover.kind
        if kind == "process":
            cgroup = self._find_cgroup(found.machine_id)
            if cgroup is not None:  # it may be frozen
                await asyncio.to_thread(cgroup.kill)
            await asyncio.to_thread(kill_process, found.pid, found.ticks)
        elif kind == "mount":
            await asyncio.to_thread(Mounts.unmount, found.path)
        elif kind == "cgroup":
            cgroup = self._find_cgroup(found.path.name)
            if cgroup is not None:
                await asyncio.to_thread(cgroup.remove)
        elif kind == "image":
            await asyncio.to_thread(self.images.collect, found.path)
        elif found.path.parent == Path("layers"):
            await self.layer_gc.collect(wait=False)
        else:
            await self.trash.take_unmounted(found.path)


def _size_bytes(directory: Path) -> int:
    """The size of a directory.

    A directory with a disk mounted below it counts as 0, for example during the undoing of a failed start.
    """
    try:
        return tree_bytes(directory)
    except OSError as error:
        _log.debug("cannot measure %s: %s", directory, error)
        return 0


def _is_never() -> bool:
    return False


def _meet(ids: set[str], owned: Callable[[], set[str]]) -> bool:
    return not ids.isdisjoint(owned())


def _listed(kind: Callable[[], Iterator[_Found]]) -> list[_Found]:
    return list(kind())
