"""The frames that records need, for the collector. They may be more than fit into memory."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from atoll.errors import DamagedError
from atoll.store.catalog import Catalog
from atoll.store.catalog_file import batches

_TABLES = (
    "live (frame BLOB PRIMARY KEY)",
    "chosen (pack BLOB, frame BLOB, size INTEGER, PRIMARY KEY (pack, frame))",
)
# Each needed frame in one pack: of several, one that is not condemned.
_CHOOSE = """
INSERT INTO chosen SELECT pack, frame, size FROM (
    SELECT frame, pack, size,
           row_number() OVER (PARTITION BY frame ORDER BY condemned IS NOT NULL, pack) AS place
    FROM live JOIN frames USING (frame) JOIN packs USING (pack)
) WHERE place = 1
"""


@dataclass(eq=False, repr=False)
class LiveFrames:
    """Notes which frames are needed, and says of which packs.

    Args:
        catalog: What the store has.
    """

    catalog: Catalog

    def set(self, frames: Iterable[bytes]) -> None:
        """Note these, and no others any more.

        Raises:
            DamagedError: One of them is in no pack.
        """
        file = self.catalog.file
        with file.changing() as database:
            for table in _TABLES:
                database.execute(f"CREATE TEMP TABLE IF NOT EXISTS {table} WITHOUT ROWID")
            database.execute("DELETE FROM live")
            database.execute("DELETE FROM chosen")
        for some, _ in batches(frames):
            with file.changing() as database:
                database.executemany("INSERT OR IGNORE INTO live VALUES (?)", ((each,) for each in some))
        lost = file.all("SELECT frame FROM live WHERE frame NOT IN (SELECT frame FROM frames) LIMIT 1")
        if lost:
            raise DamagedError(f"the frame {lost[0][0].hex()} is missing in the store, and a record needs it")
        with file.changing() as database:
            database.execute(_CHOOSE)

    def sizes(self) -> dict[bytes, tuple[int, int]]:
        """Return the bytes of each pack, and of those the bytes that are needed of this very pack."""
        file = self.catalog.file
        sizes = dict(file.all("SELECT pack, sum(size) FROM frames GROUP BY pack"))
        needed = dict(file.all("SELECT pack, sum(size) FROM chosen GROUP BY pack"))
        return {pack: (sizes.get(pack, 0), needed.get(pack, 0)) for pack in self.catalog.packs()}

    def of(self, pack: bytes) -> list[bytes]:
        """Return the frames that are needed of this very pack."""
        return [
            frame for (frame,) in self.catalog.file.all("SELECT frame FROM chosen WHERE pack = ?", (pack,))
        ]
