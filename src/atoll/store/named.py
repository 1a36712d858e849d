"""Contents that never change, which this home has stored under a name."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

import msgspec

from atoll.store.catalog_file import CatalogFile, batches
from atoll.store.contents import Content
from atoll.types.internal import msgpack_reader

_read_content = msgpack_reader(Content)


class NamedContent(NamedTuple):
    """A content that was stored under a name, with all frames that it needs, and the packs of these."""

    content: Content
    frames: set[bytes]
    packs: set[bytes]


@dataclass(eq=False, repr=False)
class NamedContents:
    """Remembers what is stored under a name, as long as all of it can be relied on.

    Args:
        file: The tables of the catalog.
    """

    file: CatalogFile

    def note(self, name: str, content: Content, frames: Iterable[bytes]) -> None:
        """Note that a content is stored under a name, with all frames that it needs."""
        with self.file.changing() as database:
            database.execute(
                "INSERT OR REPLACE INTO named VALUES (?, ?, ?)",
                (name, msgspec.msgpack.encode(content), b"".join(sorted(frames))),
            )

    def find(self, name: str) -> NamedContent | None:
        """Return the content stored under a name; None if there is none, or a part of it is condemned or gone."""
        rows = self.file.all("SELECT content, frames FROM named WHERE name = ?", (name,))
        if not rows:
            return None
        frames = set(Content(0, rows[0][1]).frame_ids())
        packs: dict[bytes, bytes] = {}
        for some, marks in batches(frames):
            packs |= self.file.all(
                "SELECT frame, pack FROM frames JOIN packs USING (pack)"
                f" WHERE frame IN ({marks}) AND condemned IS NULL",
                some,
            )
        if packs.keys() != frames:
            return None
        try:
            content: Content = _read_content(rows[0][0])
        except msgspec.DecodeError:
            return None
        return NamedContent(content, frames, set(packs.values()))
