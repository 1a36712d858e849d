"""The results of a check of stored states."""

from __future__ import annotations

from typing import Literal

import msgspec


class Damage(msgspec.Struct, frozen=True, kw_only=True):
    """A damaged file: where it is, and what is wrong with it."""

    path: str
    what: str


class VerifiedPart(msgspec.Struct, frozen=True, repr_omit_defaults=True, kw_only=True):
    """A checkpoint, a layer of a disk or a layer of an image, and what the check found.

    ``recorded`` means that there was no checksum to compare with; it has been recorded now. ``needed_by`` are
    the snapshots, sandboxes or images that depend on the part. ``damaged`` counts the damaged files, and
    ``damages`` has the first of them.
    """

    kind: Literal["memory", "layer", "image"]
    name: str
    path: str
    state: Literal["whole", "damaged", "recorded"]
    files: int
    size_bytes: int
    needed_by: list[str]
    damages: list[Damage] = []
    damaged: int = 0


class VerifyReport(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that was checked. ``whole`` is False if any part is damaged."""

    whole: bool
    parts: list[VerifiedPart]
