"""The checksum files of trees that are in one directory and never change."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterable
from pathlib import Path

from atoll.host.files import sync_directory
from atoll.host.trees.checksum_process import check_tree, checksum_tree
from atoll.host.trees.checksums import CheckedTree, checksummed_bytes

_PREFIX, _ASIDE = ".checksums-", ".part-.checksums-"


class TreeChecksums:
    """Checksum files, each next to its tree.

    Args:
        directory: Where the trees are.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def tree(self, name: str) -> Path:
        """Return where a tree is."""
        return self._directory / name

    def path(self, name: str) -> Path:
        """Return where the checksum file of a tree is, or will be."""
        return self._directory / f"{_PREFIX}{name}"

    def has(self, name: str) -> bool:
        """Whether a tree has a checksum file."""
        return self.path(name).exists()

    def size_bytes(self, name: str) -> int:
        """Return how many bytes a check of a tree reads; 0 if it has no checksum file."""
        return checksummed_bytes(self.path(name))

    async def make(
        self, name: str, *, bytes_s: float = 0, came: Callable[[int], None] | None = None
    ) -> CheckedTree:
        """Write a tree's checksum file, unless the tree is removed meanwhile.

        If something cannot be read, that is a damage, and there is no checksum file.

        Raises:
            NoSpaceError: The disk is full.
            HostError: It failed.
        """
        # Homes may share images, and so their checksum files.
        aside = self._directory / f"{_ASIDE}{name}-{os.getpid()}"
        tree = self._directory / name
        try:
            written = await checksum_tree(tree, aside, bytes_s=bytes_s, came=came)
            if tree.is_dir() and not written.damaged:
                os.rename(aside, self.path(name))
        finally:
            aside.unlink(missing_ok=True)
        await asyncio.to_thread(sync_directory, self._directory)
        return written

    async def check(self, name: str, *, came: Callable[[int], None] | None = None) -> CheckedTree:
        """Compare a tree with its checksum file. The tree is read from the disk.

        Raises:
            HostError: It failed.
        """
        return await check_tree(self._directory / name, self.path(name), came=came)

    def drop(self, names: Iterable[str]) -> None:
        """Remove the checksum files of trees that are gone."""
        for name in names:
            self.path(name).unlink(missing_ok=True)

    def halves(self) -> list[Path]:
        """Return unfinished checksum files, in progress or left by a crash."""
        return sorted(self._directory.glob(f"{_ASIDE}*"))

    def sweep(self) -> None:
        """Erase checksum files that are unfinished or have no tree.

        Call it at the start, when none is being written.
        """
        for name in os.listdir(self._directory) if self._directory.exists() else ():
            without = name.startswith(_PREFIX) and not (self._directory / name.removeprefix(_PREFIX)).exists()
            if without or name.startswith(_ASIDE):
                (self._directory / name).unlink(missing_ok=True)
