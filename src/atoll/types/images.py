"""Images: immutable root file systems."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta


class ImageInfo(msgspec.Struct, frozen=True, kw_only=True):
    """An image in the home. ``digest`` is ``sha256-…``; ``user``, ``cwd`` and ``env`` are its own defaults.

    ``entrypoint`` and ``cmd`` together are the program that it is for; a sandbox runs it only when asked to.
    ``layers`` are the contents that it is stacked of, the lowest first, each stored once for all images; an image
    that atoll built has none. ``pinned`` is a reference by which its registry always gives this very image.
    ``size_bytes`` counts layers that it shares with other images, too. One with a ``team`` was pulled with that
    team's credentials, and is for no other. What a team had pulled (``pulled_for``) counts to its quota of disk.
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
    team: str | None = None
    pulled_for: str | None = None


class RegistryLogin(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Who one is for a registry. It is nowhere kept, and not told when printed."""

    username: Annotated[str, Meta(min_length=1, max_length=512)]
    password: Annotated[str, Meta(max_length=65_536)]

    def __repr__(self) -> str:
        return "RegistryLogin(…)"

    def __rich_repr__(self) -> list[tuple[str, object]]:
        return []  # what rich prints instead of the above


class ImageAccess(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """With which rights an image is asked for.

    Args:
        team: For whom. None is whoever owns the home, who has all images that are here, and the host's own login.
            Teams have what anybody gets from its registry, and what they pulled with credentials of their own.
        login: Credentials of its registry. Pulled with them, an image of a team is for that team alone.
        trusted: The owner of the home has chosen its name for the team: the host's own login counts.
        public: A stranger has chosen its name: nothing on this machine or in its network is asked for it.
    """

    team: str | None = None
    login: RegistryLogin | None = None
    trusted: bool = False
    public: bool = False
