"""The results of a check of stored states."""

from __future__ import annotations

from typing import Literal

import msgspec


class Damage(msgspec.Struct, frozen=True, kw_only=True):
    """A damaged file: where it is, and what is wrong with it."""

    path: str
    what: str


class VerifiedPart(msgspec.Struct, frozen=True, repr_omit_defaults=True, kw_only=True):
    """A checkpoint, a layer of a disk, a layer of an image or a record, and what the check found.

    A record belongs to a sandbox, snapshot, template or volume; its check includes the files that this needs.
    ``recorded`` means that there was no checksum to compare with; it has been recorded now. ``repaired``
    means that it was damaged and no longer is. ``needed_by`` are the snapshots, sandboxes or images that
    depend on the part. ``damaged`` counts the damaged files, and ``damages`` has the first of them.
    """

    kind: Literal["memory", "layer", "image", "record"]
    name: str
    path: str
    state: Literal["whole", "damaged", "recorded", "repaired"]
    files: int
    size_bytes: int
    needed_by: list[str]
    damages: list[Damage] = []
    damaged: int = 0


class VerifyReport(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that was checked. ``whole`` is False if any part is damaged."""

    whole: bool
    parts: list[VerifiedPart]
