"""Images: immutable root file systems."""

from __future__ import annotations

import msgspec


class ImageInfo(msgspec.Struct, frozen=True, kw_only=True):
    """An image in the home. ``digest`` is ``sha256-…``; ``user``, ``cwd`` and ``env`` are its own defaults.

    ``entrypoint`` and ``cmd`` together are the program that it is for; a sandbox runs it only when asked to.
    ``layers`` are the contents that it is stacked of, the lowest first, each stored once for all images; an image
    that atoll built has none. ``pinned`` is a reference by which its registry always gives this very image.
    ``size_bytes`` counts layers that it shares with other images, too.
    """

    name: str
    digest: str
    size_bytes: int
    created_at: float
    user: str
    cwd: str
    env: dict[str, str]
    entrypoint: list[str] = []
    cmd: list[str] = []
    layers: list[str] = []
    pinned: str | None = None
