"""Checks that everything the home has records of is there, and that each record has its copy."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from atoll.supervisor.state.row_copies import ROW
from atoll.supervisor.state.rows import SandboxRow, SnapshotRow, TemplateRow, VolumeRow, key_of
from atoll.types import Damage, VerifiedPart

if TYPE_CHECKING:
    from atoll.supervisor.integrity.stored_trees import StoredTrees
    from atoll.supervisor.state.row_copies import RowCopies
    from atoll.supervisor.storage.template_rows import TemplateRows
    from atoll.supervisor.storage.volumes import Volumes

_Row = SandboxRow | SnapshotRow | VolumeRow | TemplateRow


@dataclass(kw_only=True, eq=False, repr=False)
class StoredRecords:
    """Checks records.

    Args:
        image_is_there: Whether an image, by digest, is complete.
        copy: Writes the given copies of rows, and all pending copies.
    """

    trees: StoredTrees
    volumes: Volumes
    templates: TemplateRows
    image_is_there: Callable[[str], bool]
    copies: RowCopies
    copy: Callable[..., Awaitable[None]]

    async def check(self) -> dict[str, VerifiedPart]:
        """Check the records of all sandboxes, snapshots, templates and volumes, and find missing images."""
        await self.copy()  # a row that has just changed has no copy yet
        rows, used = list(self._rows()), self.trees.image_users()
        return await asyncio.to_thread(self._check, rows, used)

    async def look_again(self, before: dict[str, VerifiedPart], *, repair: bool) -> list[VerifiedPart]:
        """Check the damaged parts again: a change may have been in progress at the first look.

        Args:
            before: The earlier result of ``check``.
            repair: Write lost copies of records again; the database has the record.
        """
        suspects = {key for key, part in before.items() if part.state == "damaged"}
        rows = [row for row in self._rows() if key_of(row) in suspects]
        used = {digest: users for digest, users in self.trees.image_users().items() if digest in suspects}
        now = await asyncio.to_thread(self._check, rows, used)
        if repair:
            now |= await self._copied_again([row for row in self._rows() if key_of(row) in now], now)
        return [*(part for key, part in before.items() if key not in suspects), *now.values()]

    async def _copied_again(
        self, rows: Sequence[_Row], parts: Mapping[str, VerifiedPart]
    ) -> dict[str, VerifiedPart]:
        lost = [row for row in rows if [damage.path for damage in parts[key_of(row)].damages] == [ROW]]
        await self.copy(*lost)
        after = await asyncio.to_thread(self._check, lost, {})
        return {
            key: msgspec.structs.replace(part, state="repaired") if part.state == "whole" else part
            for key, part in after.items()
        }

    def _check(self, rows: Sequence[_Row], used: Mapping[str, list[str]]) -> dict[str, VerifiedPart]:
        found = {key_of(row): self._checked(row) for row in rows}
        missing = {digest: users for digest, users in used.items() if not self.image_is_there(digest)}
        return found | {digest: _missing(digest, users) for digest, users in missing.items()}

    def _rows(self) -> Iterator[_Row]:
        yield from (one.row for one in self.trees.inventory.sandboxes() if one.row.state != "creating")
        yield from self.trees.inventory.snapshots()
        yield from self.templates.all()
        yield from self.volumes.list()

    def _checked(self, row: _Row) -> VerifiedPart:
        place, key = self.copies.place(row), key_of(row)
        damages = [Damage(path=".", what=what) for what in self._lost(row, place)]
        if not damages and self.copies.of(type(row), key) is None:
            what = "the copy of its record is lost or damaged; the database still has the record"
            damages.append(Damage(path=ROW, what=what))
        return VerifiedPart(
            kind="record",
            name=row.name or key,
            path=str(place),
            state="damaged" if damages else "whole",
            files=1,
            size_bytes=0,
            needed_by=self._users(row),
            damages=damages,
            damaged=len(damages),
        )

    def _lost(self, row: _Row, place: Path) -> Iterator[str]:
        if isinstance(row, SandboxRow):
            if not row.engine_disk and not self.trees.paths.disk(row.sandbox_id, row.disk).is_dir():
                yield "its disk is missing"
        elif isinstance(row, TemplateRow):
            known = {one.snapshot_id for one in self.trees.inventory.snapshots()}
            for build in row.builds:
                if build.snapshot_id is not None and build.snapshot_id not in known:
                    yield f"the snapshot of its build {build.build_id} is missing"
        elif isinstance(row, VolumeRow):
            if not self.trees.paths.volume_data(row.volume_id).is_dir():
                yield "its directory is missing"
        elif not place.is_dir():
            yield "its directory is missing"

    def _users(self, row: _Row) -> list[str]:
        if not isinstance(row, VolumeRow):
            return [key_of(row)]
        mounted = [
            one.row.called for one in self.trees.inventory.sandboxes() if row.volume_id in one.row.volume_ids
        ]
        return [row.name, *mounted]


def _missing(name: str, users: Sequence[str]) -> VerifiedPart:
    return VerifiedPart(
        kind="image",
        name=name,
        path=name,
        state="damaged",
        files=0,
        size_bytes=0,
        needed_by=list(users),
        damages=[Damage(path=".", what="it, or a layer of it, is missing")],
        damaged=1,
    )
