"""Seals of frozen layers: what each file in them was, so that a damaged one is found."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterable
from pathlib import Path

from atoll.host import SealedTree, check_tree, seal_tree, sealed_bytes, sync_directory

_SEAL, _ASIDE = ".seal-", ".part-.seal-"


class LayerSeals:
    """The seals of a home's frozen layers, each a file beside its layer.

    Args:
        directory: Where the layers lie.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def path(self, layer_id: str) -> Path:
        """Where a layer's seal is, or will be."""
        return self._directory / f"{_SEAL}{layer_id}"

    def has(self, layer_id: str) -> bool:
        """Whether a layer is sealed."""
        return self.path(layer_id).exists()

    def size_bytes(self, layer_id: str) -> int:
        """How many bytes checking a layer reads; 0 when it is not sealed."""
        return sealed_bytes(self.path(layer_id))

    async def make(
        self, layer_id: str, *, bytes_s: float = 0, came: Callable[[int], None] | None = None
    ) -> SealedTree:
        """Seal a layer, unless it is removed meanwhile. With damages, what could not be read, there is no seal.

        Raises:
            HostError: It could not be done.
        """
        aside = self._directory / f"{_ASIDE}{layer_id}"
        layer = self._directory / layer_id
        try:
            sealed = await seal_tree(layer, aside, bytes_s=bytes_s, came=came)
            if layer.is_dir() and not sealed.damaged:
                os.rename(aside, self.path(layer_id))
        finally:
            aside.unlink(missing_ok=True)
        await asyncio.to_thread(sync_directory, self._directory)
        return sealed

    async def check(self, layer_id: str, *, came: Callable[[int], None] | None = None) -> SealedTree:
        """Compare a layer with its seal, reading what the disk has.

        Raises:
            HostError: It could not be done.
        """
        return await check_tree(self._directory / layer_id, self.path(layer_id), came=came)

    def drop(self, layer_ids: Iterable[str]) -> None:
        """Forget the seals of layers that are gone."""
        for layer_id in layer_ids:
            self.path(layer_id).unlink(missing_ok=True)

    def sweep(self) -> None:
        """Erase seals that crashes left without a layer, and halves. For the start, when none is being made."""
        for name in os.listdir(self._directory) if self._directory.exists() else ():
            without = name.startswith(_SEAL) and not (self._directory / name.removeprefix(_SEAL)).exists()
            if without or name.startswith(_ASIDE):
                (self._directory / name).unlink(missing_ok=True)
