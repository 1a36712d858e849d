"""Computes the checksums of frozen layers and images in the background."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator
from pathlib import Path

from atoll.errors import AtollError
from atoll.host import CheckedTree, TreeChecksums
from atoll.supervisor.integrity.stored_trees import StoredTrees
from atoll.supervisor.state.tasks import Tasks

_LOOK_S = 10.0
_log = logging.getLogger(__name__)


class BackgroundChecksums:
    """Computes checksums of the trees that sandboxes and snapshots use, slowly and one tree at a time.

    A tree is processed once two looks have found it, because the layers of forks are often gone by then.
    The next supervisor goes on with the trees that this one leaves.

    Args:
        trees: The trees to compute checksums of.
        tasks: Owner of the work.
        bytes_s: The most bytes to read in a second.
        look_s: Seconds between two looks.
    """

    def __init__(self, trees: StoredTrees, tasks: Tasks, bytes_s: float, look_s: float = _LOOK_S) -> None:
        self._trees = trees
        self._tasks = tasks
        self._bytes_s = bytes_s
        self._look_s = look_s
        self._done: set[Path] = set()
        self._making: asyncio.Task[CheckedTree] | None = None
        self._stops = 0

    def start(self) -> None:
        """Start to look for trees without checksums."""
        self._tasks.watch(self._looking())

    @property
    def busy(self) -> bool:
        """Whether checksums are being computed."""
        return self._making is not None

    @contextlib.asynccontextmanager
    async def stopped(self) -> AsyncIterator[None]:
        """Compute no checksums inside the block. An interrupted tree starts from its beginning later."""
        self._stops += 1
        try:
            if self._making is not None:
                self._making.cancel()
                await asyncio.wait({self._making})
            yield
        finally:
            self._stops -= 1

    async def _looking(self) -> None:
        before: set[Path] = set()
        while True:
            await asyncio.sleep(self._look_s)
            due = self._due()
            for tree in sorted(due & before):
                if not self._stops and tree in self._due():
                    await self._write(tree)
            before = due

    def _due(self) -> set[Path]:
        needed = self._trees.all()
        self._done &= needed
        self._done |= {tree for tree in needed - self._done if TreeChecksums(tree.parent).has(tree.name)}
        return needed - self._done

    async def _write(self, tree: Path) -> None:
        self._making = asyncio.create_task(TreeChecksums(tree.parent).make(tree.name, bytes_s=self._bytes_s))
        try:
            await asyncio.wait({self._making})
            if not self._making.cancelled():
                self._note(tree, self._making)
        finally:
            self._making.cancel()
            await asyncio.wait({self._making})
            self._making = None

    def _note(self, tree: Path, made: asyncio.Task[CheckedTree]) -> None:
        # A tree that fails is tried again by the next supervisor, and by each verification.
        self._done.add(tree)
        error = made.exception()
        if error is not None and not isinstance(error, AtollError | OSError):
            raise error
        if error is not None or made.result().damaged:
            why = error or made.result().damages[0].what
            if tree.is_dir():
                _log.warning("cannot make checksums of %s: %s", tree, why)
