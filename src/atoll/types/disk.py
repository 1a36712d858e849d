"""What a home uses on its disk."""

from __future__ import annotations

from typing import Literal

import msgspec


class DiskUse(msgspec.Struct, frozen=True, repr_omit_defaults=True, kw_only=True):
    """What one thing uses on the disk, in bytes of disk blocks.

    ``own_bytes`` is used by it alone, ``shared_bytes`` also by others, such as a layer of a disk on which
    several sandboxes stand. The image below a sandbox is counted with the image. A snapshot of a template's
    build is counted with the template.
    """

    kind: Literal["sandbox", "snapshot", "image", "template", "volume", "team"]
    id: str
    own_bytes: int
    name: str | None = None
    team: str | None = None
    shared_bytes: int = 0


class DiskReport(msgspec.Struct, frozen=True, kw_only=True):
    """What everything uses on the disk, in bytes of disk blocks, as of some seconds ago.

    Args:
        uses: Each thing, the one with the most bytes of its own first.
        teams: What each team uses alone and with others; without a name, what belongs to no team.
        total_bytes: All of it, each part counted once.
        leftover_bytes: What ``atoll gc --remove`` would free. It is no part of the total. None for one team.
        free_bytes: What may still be written to the file system of the home. None for one team.
        disk_bytes: The size of that file system. None for one team.
    """

    uses: list[DiskUse]
    teams: list[DiskUse]
    total_bytes: int
    leftover_bytes: int | None = None
    free_bytes: int | None = None
    disk_bytes: int | None = None
