"""Computes the digest of a snapshot: one text for the whole state from which its sandboxes start."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Iterable
from pathlib import Path

from atoll.errors import DamagedError
from atoll.host import TreeChecksums
from atoll.supervisor.integrity.checksums import BOOT, CHECKSUMS_FILE
from atoll.supervisor.integrity.stored_trees import StoredTrees


class StateDigests:
    """Computes digests of snapshots, one at a time. A snapshot never changes, so each is computed once.

    Args:
        trees: Where their parts are.
    """

    def __init__(self, trees: StoredTrees) -> None:
        self._trees = trees
        self._turn = asyncio.Lock()
        self._known: dict[str, str] = {}

    async def digest(self, ref: str) -> str:
        """Return the SHA-256 over a snapshot's memory, the layers of its disk, and its image's digest.

        Layers without checksums get them.

        Raises:
            SnapshotNotFoundError: There is no such snapshot.
            DamagedError: A part of it is missing or cannot be read.
        """
        inventory, layers = self._trees.inventory, self._trees.layers
        row = inventory.snapshot(ref)
        async with self._turn:
            if row.snapshot_id in self._known:
                return self._known[row.snapshot_id]
            with inventory.pins.during(row.snapshot_id, *row.stack):
                sums = [await self._checksums(layers.path(layer_id)) for layer_id in row.stack]
                memory = self._trees.paths.snapshot_checkpoint(row.snapshot_id)
                try:
                    found = await asyncio.to_thread(_digest, row.image_digest, memory, sums)
                except OSError as error:
                    raise DamagedError(
                        f"snapshot {ref!r} cannot be read: {error}", hint=f"see `atoll snapshot verify {ref}`"
                    ) from error
        kept = {one.snapshot_id for one in inventory.snapshots()}
        self._known = {known: digest for known, digest in self._known.items() if known in kept}
        self._known[row.snapshot_id] = found
        return found

    async def _checksums(self, layer: Path) -> Path:
        """The checksum file of a layer: the names, facts and content of all in it."""
        checksums = TreeChecksums(layer.parent)
        if not checksums.has(layer.name):
            await checksums.make(layer.name)
        return checksums.path(layer.name)


def _digest(image_digest: str, memory: Path, sums: Iterable[Path]) -> str:
    total = hashlib.sha256(f"image {image_digest}\n".encode())
    for path in sorted(memory.iterdir()):
        if path.is_file() and path.name not in (BOOT, CHECKSUMS_FILE):
            total.update(f"memory {path.name} {_sha256(path)}\n".encode())
    for path in sums:
        total.update(f"layer {_sha256(path)}\n".encode())
    return total.hexdigest()


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
