"""Frozen layers, where they lie."""

from __future__ import annotations

import os
import secrets
from pathlib import Path

import anyio.to_thread

from atoll.errors import InternalError
from atoll.host import TreeSeals, remove_tree, sync_directory, sync_tree, tree_bytes
from atoll.snapshots.chains import Stack
from atoll.snapshots.layercopy import copying
from atoll.snapshots.layermerge import LayerMerge

ASIDE = ".part-"
_ID_BYTES = 10


class LayerStore:
    """The frozen layers of a home, each a directory of its id. Blocks as ``Layers`` does.

    Args:
        directory: Where they lie, on the file system of the sandboxes.
        complete: Whether one may stand on another.
    """

    def __init__(self, directory: Path, complete: bool) -> None:
        self._directory = directory
        self._complete = complete
        self.seals = TreeSeals(directory)

    def ids(self) -> list[str]:
        """Ids of all frozen layers."""
        return sorted(name for name in self._names() if not name.startswith("."))

    def remove_unfinished(self) -> list[str]:
        """Erase what crashes left of copies and removals; the ids. For the start, when no copy is under
        way.
        """
        self.seals.sweep()
        found = [name for name in self._names() if name.startswith(ASIDE)]
        for name in found:
            remove_tree(self._directory / name)
        return [name.removeprefix(ASIDE) for name in found]

    def _names(self) -> list[str]:
        return os.listdir(self._directory) if self._directory.exists() else []

    def path(self, layer_id: str) -> Path:
        """Where a frozen layer lies."""
        return self._directory / layer_id

    def size_bytes(self, layer_id: str) -> int:
        """Bytes that a frozen layer occupies."""
        return tree_bytes(self.path(layer_id))

    async def sync(self, layer_id: str) -> None:
        """Return when all of a layer is on the disk, so that it survives a power cut."""
        await anyio.to_thread.run_sync(sync_tree, self.path(layer_id))

    def merge(self, run: Stack, layer_id: str) -> None:
        """Make one layer that says what a run of layers, the top one first, says; durable when this returns.

        Disks on the run show the same on it. The run stays.

        Raises:
            InternalError: Layers of a user namespace cannot be merged; they are never below another one.
            NoSpaceError: The disk is full.
            HostError: A file could not be copied.
        """
        if not self._complete:
            raise InternalError("a layer of the lesser kind stands on no other")
        aside = self._directory / f"{ASIDE}{layer_id}"
        try:
            with copying(self.path(run[0])):
                LayerMerge([self.path(layer) for layer in run], aside).merge()
                sync_tree(aside)
                os.rename(aside, self.path(layer_id))
                sync_directory(self._directory)
        except BaseException:
            remove_tree(aside)
            raise


def new_layer_id() -> str:
    """An id that no layer has: 20 hexadecimal digits."""
    return secrets.token_hex(_ID_BYTES)
