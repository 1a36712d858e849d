"""Erases directories of the home, whichever users own the files in them."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING

from atoll.errors import AtollError
from atoll.host import remove_tree
from atoll.supervisor.state.ids import new_id

if TYPE_CHECKING:
    from atoll.supervisor.state.registry import Registry
    from atoll.supervisor.state.tasks import Tasks

ASIDE = ".erased-"
_log = logging.getLogger(__name__)


async def erase(path: Path) -> None:
    """Remove a directory tree. A missing one is no error.

    It is renamed first, so that after a crash midway it is clearly a leftover.
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
    """Do what ``erase`` does for something outdated. What cannot be removed is left to ``gc``."""
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
    """Erases outdated directories after the client has its answer: 10 GB take a second and more.

    Args:
        directory: Where they are until then, on the file system of the home.
        registry: Pins what is being erased, so that it does not count as a leftover.
        tasks: Owner of the erasing.
    """

    def __init__(self, directory: Path, registry: Registry, tasks: Tasks) -> None:
        self._directory = directory
        self._registry = registry
        self._tasks = tasks

    def take(self, path: Path) -> asyncio.Task[None] | None:
        """Move a directory out of its place at once, and erase it soon. A missing one is no error.

        Returns the task that erases it, for callers that want to wait.
        """
        aside = self._directory / f"{ASIDE}{new_id()}"
        if path.parent.exists() and path.parent.stat().st_dev != self._directory.stat().st_dev:
            aside = path.parent / aside.name
        with contextlib.ExitStack() as held:
            held.enter_context(self._registry.pins.during(aside.name))
            try:
                os.rename(path, aside)
            except FileNotFoundError:
                return None
            except OSError as error:
                _log.warning("cannot remove %s: %s", path, error)
                return None
            return self._tasks.spawn(self._erase(aside, held.pop_all()))

    async def _erase(self, aside: Path, held: contextlib.ExitStack) -> None:
        with held:
            await erase_stale(aside)
