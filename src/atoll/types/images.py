"""Images: immutable root file systems."""

from __future__ import annotations

import msgspec


class ImageInfo(msgspec.Struct, frozen=True, kw_only=True):
    """An image in the home. ``digest`` is ``sha256-…``; ``user``, ``cwd`` and ``env`` are its own defaults."""

    name: str
    digest: str
    size_bytes: int
    created_at: float
    user: str
    cwd: str
    env: dict[str, str]
