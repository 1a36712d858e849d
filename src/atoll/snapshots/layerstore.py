"""The store of frozen layers."""

from __future__ import annotations

import os
import secrets
from pathlib import Path

import anyio.to_thread

from atoll.errors import InternalError
from atoll.host import TreeChecksums, remove_tree, sync_directory, sync_tree, tree_bytes
from atoll.snapshots.chains import Stack
from atoll.snapshots.layercopy import copying
from atoll.snapshots.layermerge import LayerMerge

ASIDE = ".part-"
# the mount point in a sandbox's directory
ROOT = "root"
_ID_BYTES = 10


class LayerStore:
    """The frozen layers of a home.

    Each is a directory named by its id. Methods block like those of ``Layers``.

    Args:
        directory: Where the layers are, on the file system of the sandboxes.
        complete: Whether a layer may be below another one.
    """

    def __init__(self, directory: Path, complete: bool) -> None:
        self._directory = directory
        self._complete = complete
        self.checksums = TreeChecksums(directory)

    def ids(self) -> list[str]:
        """Return the ids of all frozen layers."""
        return sorted(name for name in self._names() if not name.startswith("."))

    def remove_unfinished(self) -> list[str]:
        """Erase copies and removals that a crash cut short, and return the ids.

        Call it at the start, when no copy is running.
        """
        self.checksums.sweep()
        found = [name for name in self._names() if name.startswith(ASIDE)]
        for name in found:
            remove_tree(self._directory / name)
        return [name.removeprefix(ASIDE) for name in found]

    def _names(self) -> list[str]:
        return os.listdir(self._directory) if self._directory.exists() else []

    def path(self, layer_id: str) -> Path:
        """Return where a frozen layer is."""
        return self._directory / layer_id

    def size_bytes(self, layer_id: str) -> int:
        """Return the size of a frozen layer in bytes."""
        return tree_bytes(self.path(layer_id))

    async def sync(self, layer_id: str) -> None:
        """Return when the whole layer is on the disk, so that it survives a power cut."""
        await anyio.to_thread.run_sync(sync_tree, self.path(layer_id))

    def merge(self, run: Stack, layer_id: str) -> None:
        """Merge a run of layers, the top one first, into one layer. It is durable when this returns.

        Disks based on the run look the same on it. The run stays.

        Raises:
            InternalError: Layers of a user namespace cannot be merged; no layer ever stands on them.
            NoSpaceError: The disk is full.
            HostError: A file could not be copied.
        """
        if not self._complete:
            raise InternalError("layers of a user namespace cannot be merged")
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
    """Make an id that no layer has: 20 hexadecimal digits."""
    return secrets.token_hex(_ID_BYTES)
