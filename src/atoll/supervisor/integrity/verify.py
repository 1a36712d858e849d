"""Verifies stored states byte by byte on request."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Literal

import msgspec

from atoll.host import CheckedTree, TreeChecksums, to_the_end, tree_bytes
from atoll.supervisor.integrity.background_checksums import BackgroundChecksums
from atoll.supervisor.integrity.checksums import CheckpointChecksums
from atoll.supervisor.integrity.stored_trees import StoredMemory, StoredTrees
from atoll.supervisor.storage.layer_gc import LayerGC
from atoll.types import Progress, VerifiedPart, VerifyReport

Report = Callable[[Progress], None]


class Verification:
    """Verifies memories and layers, one request at a time.

    Args:
        trees: The trees to verify.
        checksums: The checksums of checkpoints.
        layer_gc: Afterwards erases layers that were removed meanwhile.
        background: The background checksums, which pause during a verification.
    """

    def __init__(
        self,
        trees: StoredTrees,
        checksums: CheckpointChecksums,
        layer_gc: LayerGC,
        background: BackgroundChecksums,
    ) -> None:
        self._trees = trees
        self._checksums = checksums
        self._layer_gc = layer_gc
        self._background_checksums = background
        self._turn = asyncio.Lock()

    async def verify(self, refs: Sequence[str], report: Report) -> VerifyReport:
        """Read the memories and layers of snapshots, by id or name, and report which files have changed.

        Without names, verify all snapshots, and the layers and memories of all sandboxes. Each layer is read
        once. A tree without checksums gets them. Everything keeps running, but layers removed meanwhile are
        erased only afterwards.

        Raises:
            SnapshotNotFoundError: There is no such snapshot.
            HostError: A layer could not be verified.
        """
        async with self._turn, self._background_checksums.stopped():
            trees, inventory = self._trees, self._trees.inventory
            rows = [inventory.snapshot(ref) for ref in refs] or trees.rows()
            layers = trees.layer_users(rows)
            try:
                with inventory.pins.during(*layers):
                    parts = await self._examine(trees.memories(rows), layers, report)
            finally:
                await to_the_end(self._layer_gc.collect(wait=False))
        return _report(parts)

    async def verify_images(self, names: Sequence[str], report: Report) -> VerifyReport:
        """Read the layers of images, by name or digest, and report which files have changed since they came.

        Without names, verify all images. Each layer is read once. A layer without checksums gets them.

        Raises:
            ImageNotFoundError: There is no such image.
            HostError: A layer could not be verified.
        """
        images = self._trees.images
        async with self._turn, self._background_checksums.stopped():
            trees = await asyncio.to_thread(images.trees, names)
            sizes = {tree: TreeChecksums(tree.parent).size_bytes(tree.name) for tree in trees}
            steps = _Steps(report, sum(sizes.values()))
            parts = []
            for tree, users in trees.items():
                part = await self._tree("image", tree, list(users), steps.step(f"the layers of {users[0]}"))
                steps.done(sizes[tree])
                # A layer that was removed meanwhile is not damaged.
                parts += [part] if tree in await asyncio.to_thread(images.trees, []) else []
        return _report(parts)

    async def _examine(
        self, memories: list[StoredMemory], layers: dict[str, list[str]], report: Report
    ) -> list[VerifiedPart]:
        sizes = await asyncio.to_thread(self._sizes, memories, layers)
        steps = _Steps(report, sum(sizes.values()))
        parts = []
        for memory in memories:
            part = await self._memory(memory, steps.step(f"the memory of {memory.name}"))
            parts += [part] if part else []
            steps.done(sizes[memory.name])
        for layer_id, users in layers.items():
            layer = self._trees.layers.path(layer_id)
            parts.append(await self._tree("layer", layer, users, steps.step(f"the layer {layer_id}")))
            steps.done(sizes[layer_id])
        return parts

    def _sizes(self, memories: Iterable[StoredMemory], layers: Iterable[str]) -> dict[str, int]:
        """How much there is to read."""
        sizes = {one.name: tree_bytes(one.place) if one.place.is_dir() else 0 for one in memories}
        checksums = self._trees.layers.checksums
        for layer_id in layers:
            sizes[layer_id] = checksums.size_bytes(layer_id) or (
                self._trees.layers.size_bytes(layer_id) if self._trees.layers.path(layer_id).is_dir() else 0
            )
        return sizes

    async def _memory(self, memory: StoredMemory, came: Callable[[int], None]) -> VerifiedPart | None:
        """The result for a memory; None if it was removed meanwhile."""
        checksums = self._checksums
        loop = asyncio.get_running_loop()

        def came_there(count: int) -> None:
            loop.call_soon_threadsafe(came, count)

        found = await asyncio.to_thread(checksums.examine, memory.place, came_there)
        if not memory.kept():
            return None
        recorded = found is None
        if found is None:
            await asyncio.to_thread(checksums.write, memory.place)
            found = CheckedTree(0, 0)
        if memory.whole and not found.damaged:
            part = await self._tree("memory", memory.place, [memory.name], came)
            return msgspec.structs.replace(part, name=memory.name) if memory.kept() else None
        return _part("memory", memory.name, memory.place, found, recorded=recorded, users=[memory.name])

    async def _tree(
        self,
        kind: Literal["memory", "layer", "image"],
        tree: Path,
        users: list[str],
        came: Callable[[int], None],
    ) -> VerifiedPart:
        checksums = TreeChecksums(tree.parent)
        recorded = not checksums.has(tree.name)
        found = await (checksums.make if recorded else checksums.check)(tree.name, came=came)
        name = tree.name if tree.name != "rootfs" else tree.parent.name
        return _part(kind, name, tree, found, recorded=recorded, users=users)


class _Steps:
    """Reports the overall progress."""

    def __init__(self, report: Report, total: int) -> None:
        self._report = report
        self._total = total
        self._before = 0

    def step(self, what: str) -> Callable[[int], None]:
        """Start a step. Returns the function to call with the number of its bytes that are done."""

        def came(count: int) -> None:
            done = min(self._before + count, self._total)
            self._report(Progress(step=f"reading {what}", done=done, total=self._total, unit="bytes"))

        came(0)
        return came

    def done(self, count: int) -> None:
        """Count the bytes of a finished step."""
        self._before += count


def _report(parts: list[VerifiedPart]) -> VerifyReport:
    return VerifyReport(whole=all(part.state != "damaged" for part in parts), parts=parts)


def _part(
    kind: Literal["memory", "layer", "image"],
    name: str,
    place: Path,
    found: CheckedTree,
    *,
    recorded: bool,
    users: list[str],
) -> VerifiedPart:
    return VerifiedPart(
        kind=kind,
        name=name,
        path=str(place),
        state="damaged" if found.damaged else "recorded" if recorded else "whole",
        files=found.entries,
        size_bytes=found.size_bytes,
        needed_by=users,
        damages=found.damages,
        damaged=found.damaged,
    )
