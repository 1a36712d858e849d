"""What a crash left on the host and nothing owns."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from atoll.errors import AtollError
from atoll.host import Mounts, kill_process, mounts_below, start_ticks, tree_bytes
from atoll.protocol import Leftover
from atoll.supervisor.erasing import ASIDE, erase
from atoll.supervisor.layersweep import drop_unused_layers
from atoll.supervisor.ownership import layers_in_use, owned_ids, versions_in_use
from atoll.supervisor.parts import Parts

if TYPE_CHECKING:
    from atoll.host import CgroupRoot

_PROC = Path("/proc")
_log = logging.getLogger(__name__)


class _Found(msgspec.Struct, frozen=True):
    """A leftover and what removes it."""

    leftover: Leftover
    path: Path
    pid: int = 0
    ticks: int = 0


class Leftovers:
    """Finds and removes what nothing owns.

    Args:
        parts: What sandboxes are made of; its table knows what is owned.
        pool_ids: The sandbox ids of warm machines.
        cgroups: Where machines have their cgroups, if they have any.
    """

    def __init__(self, parts: Parts, pool_ids: Callable[[], set[str]], cgroups: CgroupRoot | None) -> None:
        self._parts = parts
        self._pool_ids = pool_ids
        self._cgroups = cgroups

    async def find(self) -> list[Leftover]:
        """All there are; touches nothing."""
        return [found.leftover for found in await asyncio.to_thread(_listed, self._all)]

    async def collect(self, *, images: bool = False) -> list[Leftover]:
        """Remove all there are; tells what was removed.

        Args:
            images: Images that lost their name, layers and downloads as well: people decide when those go.
        """
        removed = []
        # Each kind is looked for when those before are gone: a mount is only free when its process has ended.
        kinds = [self._processes, self._mounts, self._cgroup_names, self._directories]
        for kind in [*kinds, self._images] if images else kinds:
            for found in await asyncio.to_thread(_listed, kind):
                try:
                    await self._remove(found)
                    removed.append(found.leftover)
                except (AtollError, OSError) as error:
                    _log.warning("cannot remove %s: %s", found.path, error)
        return removed

    def _all(self) -> Iterator[_Found]:
        yield from self._processes()
        yield from self._mounts()
        yield from self._cgroup_names()
        yield from self._directories()
        yield from self._images()

    def _images(self) -> Iterator[_Found]:
        for path in self._parts.images.unneeded():
            leftover = Leftover(kind="image", name=str(path), size_bytes=tree_bytes(path))
            yield _Found(leftover, path)

    def _processes(self) -> Iterator[_Found]:
        owned = self._parts.berths.machine_ids()
        prefix = os.fsencode(self._parts.places.machines) + b"/"
        for entry in _PROC.iterdir():
            if not entry.name.isdigit():
                continue
            try:
                arguments = (entry / "cmdline").read_bytes()
            except OSError:
                continue
            _, found, rest = arguments.partition(prefix)
            machine_id = os.fsdecode(rest[:20])
            ticks = start_ticks(int(entry.name)) if found and machine_id not in owned else None
            if ticks is not None:
                leftover = Leftover(kind="process", name=f"{entry.name} of machine {machine_id}")
                yield _Found(leftover, entry, int(entry.name), ticks)

    def _mounts(self) -> Iterator[_Found]:
        owned = self._parts.berths.disks()
        for point in mounts_below(self._parts.places.sandboxes):
            if not any(point.is_relative_to(disk) for disk in owned):
                yield _Found(Leftover(kind="mount", name=str(point)), point)

    def _cgroup_names(self) -> Iterator[_Found]:
        owned = self._parts.berths.machine_ids()
        for name in self._cgroups.names() if self._cgroups else ():
            if name not in owned:
                yield _Found(Leftover(kind="cgroup", name=name), Path(name))

    def _directories(self) -> Iterator[_Found]:
        owned = owned_ids(self._parts.table) | self._pool_ids()
        places = self._parts.places
        for parent in (places.sandboxes, places.snapshots):
            yield from self._unowned(parent, owned)
        yield from self._unowned(places.machines, self._parts.berths.machine_ids())
        for layer_id in set(self._parts.layers.ids()) - layers_in_use(self._parts.table):
            size = self._parts.layers.size_bytes(layer_id)
            leftover = Leftover(kind="directory", name=f"layers/{layer_id}", size_bytes=size)
            yield _Found(leftover, Path("layers") / layer_id)
        for path in self._parts.programs.unneeded(versions_in_use(self._parts.table)):
            yield _Found(Leftover(kind="directory", name=str(path), size_bytes=tree_bytes(path)), path)

    def _unowned(self, parent: Path, owned: set[str]) -> Iterator[_Found]:
        for entry in sorted(parent.iterdir()) if parent.exists() else ():
            # What is just being erased is nobody's leftover as long as somebody is at it.
            if entry.name not in owned and entry.name.removeprefix(ASIDE) not in owned:
                yield _Found(Leftover(kind="directory", name=str(entry), size_bytes=tree_bytes(entry)), entry)

    async def _remove(self, found: _Found) -> None:
        kind = found.leftover.kind
        if kind == "process":
            await asyncio.to_thread(kill_process, found.pid, found.ticks)
        elif kind == "mount":
            await asyncio.to_thread(Mounts.unmount, found.path)
        elif kind == "cgroup":
            cgroup = self._cgroups.find(found.path.name) if self._cgroups else None
            if cgroup is not None:
                await asyncio.to_thread(cgroup.remove)
        elif kind == "image":
            await asyncio.to_thread(self._parts.images.collect, found.path)
        elif found.path.parent == Path("layers"):
            await drop_unused_layers(self._parts)
        else:
            await erase(found.path)


def _listed(kind: Callable[[], Iterator[_Found]]) -> list[_Found]:
    return list(kind())
