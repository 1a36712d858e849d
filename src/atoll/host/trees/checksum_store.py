"""The seals of trees that lie in one directory and never change."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterable
from pathlib import Path

from atoll.host.files import sync_directory
from atoll.host.trees.checksum_process import check_tree, seal_tree
from atoll.host.trees.checksums import SealedTree, sealed_bytes

_SEAL, _ASIDE = ".seal-", ".part-.seal-"


class TreeSeals:
    """Seals, each a file beside its tree.

    Args:
        directory: Where the trees lie.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def tree(self, name: str) -> Path:
        """Where a tree lies."""
        return self._directory / name

    def path(self, name: str) -> Path:
        """Where the seal of a tree is, or will be."""
        return self._directory / f"{_SEAL}{name}"

    def has(self, name: str) -> bool:
        """Whether a tree is sealed."""
        return self.path(name).exists()

    def size_bytes(self, name: str) -> int:
        """How many bytes checking a tree reads; 0 when it is not sealed."""
        return sealed_bytes(self.path(name))

    async def make(
        self, name: str, *, bytes_s: float = 0, came: Callable[[int], None] | None = None
    ) -> SealedTree:
        """Seal a tree, unless it is removed meanwhile. With damages, what could not be read, there is no seal.

        Raises:
            NoSpaceError: The disk is full.
            HostError: It could not be done.
        """
        # Homes may share images, and so their seals.
        aside = self._directory / f"{_ASIDE}{name}-{os.getpid()}"
        tree = self._directory / name
        try:
            sealed = await seal_tree(tree, aside, bytes_s=bytes_s, came=came)
            if tree.is_dir() and not sealed.damaged:
                os.rename(aside, self.path(name))
        finally:
            aside.unlink(missing_ok=True)
        await asyncio.to_thread(sync_directory, self._directory)
        return sealed

    async def check(self, name: str, *, came: Callable[[int], None] | None = None) -> SealedTree:
        """Compare a tree with its seal, reading what the disk has.

        Raises:
            HostError: It could not be done.
        """
        return await check_tree(self._directory / name, self.path(name), came=came)

    def drop(self, names: Iterable[str]) -> None:
        """Forget the seals of trees that are gone."""
        for name in names:
            self.path(name).unlink(missing_ok=True)

    def halves(self) -> list[Path]:
        """Seals that are being made, or that a crash left so."""
        return sorted(self._directory.glob(f"{_ASIDE}*"))

    def sweep(self) -> None:
        """Erase seals that crashes left without a tree, and halves. For the start, when none is being made."""
        for name in os.listdir(self._directory) if self._directory.exists() else ():
            without = name.startswith(_SEAL) and not (self._directory / name.removeprefix(_SEAL)).exists()
            if without or name.startswith(_ASIDE):
                (self._directory / name).unlink(missing_ok=True)
