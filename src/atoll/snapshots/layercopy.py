"""Copies a writable layer while a guest writes to it, except for the last part."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
from collections.abc import Callable, Iterator
from pathlib import Path

from atoll.errors import HostError, NoSpaceError
from atoll.host import TreeCopy, remove_tree, to_the_end

_FULL = (errno.ENOSPC, errno.EDQUOT)


class LayerCopy:
    """Copies a writable layer in two phases: ``first`` while the guest runs, ``last`` while it is stopped.

    Only ``last`` decides the content of the copy, even if the guest changes its files in between. Without
    ``first``, ``last`` copies everything.

    Args:
        upper: The writable layer.
        aside: Where the copy is built; ``first`` makes it.
        target: The final place of ``aside``. Its name is the id of the layer.
        settle: Called before each look at ``upper``. It completes the kernel's half-done work there.
        stamped: Whether the time stamps where ``upper`` is show every write after a sync (not so on tmpfs).
    """

    def __init__(
        self, upper: Path, aside: Path, target: Path, *, settle: Callable[[], None], stamped: bool
    ) -> None:
        self.layer_id = target.name
        self._upper = upper
        self._aside = aside
        self._target = target
        self._settle = settle
        self._stamped = stamped
        self._tree = TreeCopy(upper, aside)
        self._begun = False

    async def first(self) -> None:
        """Copy the present content while the guest runs. On an error or a cancellation call ``abandon``.

        Raises:
            NoSpaceError: The disk is full.
            HostError: A file could not be copied.
        """
        if self._stamped:
            self._begun = True
            await self._in_thread(self._first)

    async def last(self) -> str:
        """Copy the changes since ``first``, move the layer to its place and return its id.

        Call it while the guest is paused. An engine may write its checkpoint at the same time. The layer is
        durable only after ``Layers.sync``.

        Raises:
            NoSpaceError: The disk is full.
            HostError: A file could not be copied.
        """
        await self._in_thread(self._last)
        return self.layer_id

    async def abandon(self) -> None:
        """Erase the copy. Idempotent; does nothing after ``last``."""
        await to_the_end(asyncio.to_thread(remove_tree, self._aside))

    def _first(self) -> None:
        self._settle()
        self._tree.first()

    def _last(self) -> None:
        self._settle()
        if self._begun:
            self._tree.last()
        else:
            self._tree.copy()
        os.rename(self._aside, self._target)

    async def _in_thread(self, work: Callable[[], None]) -> None:
        # The thread must not still run when ``abandon`` is called.
        await to_the_end(asyncio.to_thread(self._run, work))

    def _run(self, work: Callable[[], None]) -> None:
        with copying(self._upper):
            work()


@contextlib.contextmanager
def copying(layer: Path) -> Iterator[None]:
    """Turn errors of the system while a layer is copied into atoll's errors."""
    try:
        yield
    except OSError as error:
        if error.errno in _FULL:
            raise NoSpaceError(
                f"no space is left for a copy of {layer}", hint="free some space under the home"
            ) from error
        raise HostError(
            f"the layer {layer} could not be copied: {error.strerror}: {error.filename}",
            hint="see `atoll doctor`",
        ) from error
