"""Erases directories of the home, even if other users own files in them."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import threading
from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING

from atoll.errors import AtollError, HostError
from atoll.host import free_bytes, mounts_below, remove_tree, to_the_end
from atoll.supervisor.state.ids import new_id
from atoll.supervisor.state.tasks import Tasks

if TYPE_CHECKING:
    from atoll.supervisor.state.inventory import Inventory

ASIDE = ".erased-"
# A small directory does not wait for a big one. More would take the threads that others need.
_AT_ONCE = 2
_LITTLE_BYTES = 4 << 30
_log = logging.getLogger(__name__)


async def erase(path: Path) -> None:
    """Remove a directory tree. A missing one is no error.

    This renames it first, so that after a crash midway it is clearly a leftover.
    """
    aside = path if path.name.startswith(ASIDE) else path.with_name(f"{ASIDE}{path.name}")
    if aside != path:
        with contextlib.suppress(FileNotFoundError):  # it is missing
            if aside.exists():
                await asyncio.to_thread(remove_tree, aside)
            os.rename(path, aside)
    if aside.exists():
        await asyncio.to_thread(remove_tree, aside)


async def erase_stale(path: Path) -> None:
    """Erase something outdated. If that fails, leave it to ``gc``."""
    try:
        await erase(path)
    except (AtollError, OSError) as error:
        _log.warning("cannot remove %s: %s", path, error)


async def erase_unknown(directory: Path, known: Collection[str]) -> None:
    """Remove the entries of a directory with other names: a crash came before or after their rows."""
    for entry in await asyncio.to_thread(_entries, directory):
        if entry.name not in known:
            await erase_stale(entry)


def _entries(directory: Path) -> list[Path]:
    return list(directory.iterdir()) if directory.is_dir() else []


class Trash:
    """Erases directories after the client has its answer: tens of thousands of files take a minute.

    The next supervisor erases the rest.

    Args:
        directory: Where the directories wait for that, on the file system of the home.
        inventory: Pins directories that are being erased, so that they do not count as leftovers.
    """

    def __init__(self, directory: Path, inventory: Inventory) -> None:
        self._directory = directory
        self._inventory = inventory
        self._tasks = Tasks()
        self._lanes = asyncio.Semaphore(_AT_ONCE)
        self._ending = threading.Event()

    @property
    def busy(self) -> bool:
        """Whether anything is being erased."""
        return self._tasks.busy

    def resume(self) -> None:
        """Go on to erase the rest of an earlier supervisor's trash."""
        with os.scandir(self._directory) as entries:
            left = [Path(entry.path) for entry in entries if entry.name.startswith(ASIDE)]
        for aside in left:
            if not self._inventory.pins.has(aside.name):
                self._spawn(aside)

    def take(self, path: Path) -> asyncio.Task[None] | None:
        """Move a directory out of its place at once, and erase it soon. A missing one is no error.

        Returns the task that erases it, for callers that want to wait.
        """
        try:
            return self._take(path)
        except OSError as error:
            _log.warning("cannot remove %s: %s", path, error)
            return None

    async def take_unmounted(self, path: Path) -> None:
        """Do the work of ``take``, unless there is a mount below the path.

        Raises:
            HostError: There is a mount. The path stays in its place, where ``gc`` looks for mounts.
            OSError: It cannot be moved.
        """
        if mounted := await asyncio.to_thread(mounts_below, path):
            raise HostError(f"{path} cannot be removed: {mounted[0]} is still mounted", hint="try again")
        self._take(path)

    async def make_room(self) -> None:
        """If the disk has little space, wait until everything is erased: somebody may need the space."""
        if self.busy and await asyncio.to_thread(free_bytes, self._directory) < _LITTLE_BYTES:
            await self.settle()

    async def settle(self) -> None:
        """Wait until all that is in it now is erased."""
        await self._tasks.settle(None)

    async def aclose(self, timeout_s: float) -> None:
        """Erase for at most ``timeout_s`` seconds more, and leave the rest to the next supervisor."""
        await self._tasks.settle(timeout_s)
        self._ending.set()
        await self._tasks.settle(None)

    def _take(self, path: Path) -> asyncio.Task[None] | None:
        aside = self._directory / f"{ASIDE}{new_id()}"
        try:
            if path.parent.stat().st_dev != self._directory.stat().st_dev:
                aside = path.parent / aside.name
            os.rename(path, aside)
        except FileNotFoundError:
            return None
        return self._spawn(aside)

    def _spawn(self, aside: Path) -> asyncio.Task[None]:
        # Pin it already: a thread may look for leftovers before the task begins.
        pinned = contextlib.ExitStack()
        pinned.enter_context(self._inventory.pins.during(aside.name))
        return self._tasks.spawn(self._erase(aside, pinned))

    async def _erase(self, aside: Path, pinned: contextlib.ExitStack) -> None:
        # Any other place is memory of the host, which waits for no disk.
        lane = self._lanes if aside.parent == self._directory else contextlib.nullcontext()
        with pinned:
            async with lane:
                try:
                    await to_the_end(asyncio.to_thread(remove_tree, aside, self._ending.is_set))
                except InterruptedError:
                    _log.info("%s is left to the next supervisor", aside)
                except (AtollError, OSError) as error:
                    _log.warning("cannot remove %s: %s", aside, error)
