"""The disk use of a home."""

from __future__ import annotations

from typing import Literal

import msgspec


class DiskUse(msgspec.Struct, frozen=True, repr_omit_defaults=True, kw_only=True):
    """The disk use of one thing, in bytes of disk blocks.

    ``own_bytes`` are its alone. Others use ``shared_bytes`` too, such as a layer below the disks of several
    sandboxes. The image below a sandbox counts with the image, and a snapshot of a template's build with the
    template.
    """

    kind: Literal["sandbox", "snapshot", "image", "template", "volume", "team"]
    id: str
    own_bytes: int
    name: str | None = None
    team: str | None = None
    shared_bytes: int = 0


class DiskReport(msgspec.Struct, frozen=True, kw_only=True):
    """The disk use of everything, in bytes of disk blocks, as of some seconds ago.

    Args:
        uses: Each thing, the one with the most bytes of its own first.
        teams: The disk use of each team, own and shared. The entry without a name has everything without a
            team.
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
