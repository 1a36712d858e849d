"""Images: immutable root file systems."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from atoll.types.brief import brief
from atoll.types.notebook import html_of


class ImageInfo(msgspec.Struct, frozen=True, repr_omit_defaults=True, kw_only=True):
    """An image in the home. ``digest`` is ``sha256-…``; ``user``, ``cwd`` and ``env`` are its own defaults.

    ``entrypoint`` and ``cmd`` together are the image's program; a sandbox runs it only on request. ``layers``
    are the layers of the image, lowest first, each stored once for all images. An image that atoll built has
    none. ``pinned`` is a reference for which its registry always returns this exact image. ``size_bytes``
    includes layers that it shares with other images.

    An image with a ``team`` was pulled with that team's credentials, and only that team may use it. An image
    that a team had pulled (``pulled_for``) counts towards its disk quota.
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

    def __repr__(self) -> str:
        return brief(self, "name", "digest")

    def _repr_html_(self) -> str:
        return html_of(self)


class RegistryLogin(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The login for a registry. It is stored nowhere and hidden when this is printed."""

    username: Annotated[str, Meta(min_length=1, max_length=512)]
    password: Annotated[str, Meta(max_length=65_536)]

    def __repr__(self) -> str:
        return "RegistryLogin(…)"

    def __rich_repr__(self) -> list[tuple[str, object]]:
        return []  # rich prints this instead of the fields above


class ImageAccess(
    msgspec.Struct, frozen=True, repr_omit_defaults=True, kw_only=True, forbid_unknown_fields=True
):
    """The rights with which an image is requested.

    Args:
        team: The team that requests it. None is the owner of the home, who may use every image here and the
            host's own login. A team may use images that anyone can pull from the registry, and images that it
            pulled with its own credentials.
        login: Credentials of its registry. An image of a team that is pulled with them belongs to that team
            alone.
        trusted: The owner of the home chose the image's name for the team, so the host's own login may be
            used.
        public: A stranger chose the image's name, so it is never requested from this machine or its network.
    """

    team: str | None = None
    login: RegistryLogin | None = None
    trusted: bool = False
    public: bool = False
