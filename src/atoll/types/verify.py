"""What an examination of stored states finds."""

from __future__ import annotations

from typing import Literal

import msgspec


class Damage(msgspec.Struct, frozen=True, kw_only=True):
    """A file that is not what was written: where it is, and what is wrong with it."""

    path: str
    what: str


class VerifiedPart(msgspec.Struct, frozen=True, kw_only=True):
    """A memory, a layer of a disk or a layer of an image, and what was found.

    ``sealed`` means that nothing had been noted of it before, so it could not be compared; it was noted now.
    ``needed_by`` are the snapshots, sandboxes or images that stand on it. ``damages`` are the first of the ``damaged``
    files.
    """

    kind: Literal["memory", "layer", "image"]
    name: str
    path: str
    state: Literal["whole", "damaged", "sealed"]
    files: int
    size_bytes: int
    needed_by: list[str]
    damages: list[Damage] = []
    damaged: int = 0


class VerifyReport(msgspec.Struct, frozen=True, kw_only=True):
    """All that was examined; ``whole`` is False when anything of it is damaged."""

    whole: bool
    parts: list[VerifiedPart]
