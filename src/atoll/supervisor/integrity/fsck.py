"""Checks everything that a home stores, and repairs data that has a second copy."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from atoll.host import TreeChecksums
from atoll.supervisor.integrity.repair import mend_checkpoint, mend_tree
from atoll.types import Progress, VerifiedPart, VerifyReport

if TYPE_CHECKING:
    from atoll.supervisor.integrity.checksums import CheckpointChecksums
    from atoll.supervisor.integrity.stored_records import StoredRecords
    from atoll.supervisor.integrity.stored_trees import StoredTrees
    from atoll.supervisor.integrity.verify import Verification

Report = Callable[[Progress], None]
# A check names only the first hundred damages of a tree, and a round repairs only those.
_ROUNDS = 20


@dataclass(kw_only=True, eq=False, repr=False)
class Fsck:
    """Checks a home.

    Args:
        unpacked: Returns a context with an undamaged copy of an image's files, by digest; None if there is
            none.
    """

    verification: Verification
    records: StoredRecords
    trees: StoredTrees
    checksums: CheckpointChecksums
    unpacked: Callable[[str, Report], AbstractAsyncContextManager[Path | None]]

    async def run(self, report: Report, *, repair: bool) -> VerifyReport:
        """Read everything that is stored, and report each part with its dependents.

        Everything keeps running. A part without checksums gets them.

        Args:
            repair: Also repair data that has a second copy: a checkpoint's file that another checkpoint has
                too, the image in the package atoll-base, and the copies of records.

        Raises:
            HostError: A layer could not be read.
            OSError: The disk is full or broken.
        """
        before = await self.records.check()
        parts = (await self.verification.verify([], report)).parts
        parts = [*parts, *(await self.verification.verify_images([], report)).parts]
        if repair:
            parts = [
                await self._repaired(part, report) if part.state == "damaged" else part for part in parts
            ]
        every = [*parts, *await self.records.look_again(before, repair=repair)]
        return VerifyReport(whole=all(part.state != "damaged" for part in every), parts=every)

    async def _repaired(self, part: VerifiedPart, report: Report) -> VerifiedPart:
        place = Path(part.path)
        if part.kind == "memory":
            return await self._memory(part, place)
        return await self._image(part, place, report) if part.kind == "image" else part

    async def _memory(self, part: VerifiedPart, place: Path) -> VerifiedPart:
        if not await asyncio.to_thread(mend_checkpoint, place, self.trees.checkpoints()):
            return part
        found = await asyncio.to_thread(self.checksums.examine, place, lambda _: None)
        if found is None:
            return part
        return _after(part, found.damaged)

    async def _image(self, part: VerifiedPart, tree: Path, report: Report) -> VerifiedPart:
        """Repair a tree of an image whose files a package contains: it has only one, ``rootfs``."""
        checksums = TreeChecksums(tree.parent)
        if not checksums.has(tree.name):
            return part
        damages, damaged = part.damages, part.damaged
        async with self.unpacked(tree.parent.name, report) as source:
            if source is None:
                return part
            for _ in range(_ROUNDS):
                await asyncio.to_thread(mend_tree, tree, damages, source)
                found = await checksums.check(tree.name)
                done = found.damaged in (0, damaged)
                damages, damaged = found.damages, found.damaged
                if done:
                    break
        return _after(msgspec.structs.replace(part, damages=damages), damaged)


def _after(part: VerifiedPart, damaged: int) -> VerifiedPart:
    """The part after a repair that left ``damaged`` damages."""
    if damaged:
        return msgspec.structs.replace(part, damaged=damaged)
    return msgspec.structs.replace(part, state="repaired", damages=[], damaged=0)
