"""Realms of images: a pull with one team's credentials gives no other team access to the files."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path

from atoll.images.reference import directory_name
from atoll.types import ImageAccess

_MARK = "@"


@dataclass(frozen=True)
class Realm:
    """Images that share layers, and the teams that may use them.

    No realm finds anything of another, neither by an image's digest nor by a layer's. The reason is that the
    maker of an image can claim that it contains a layer with any digest.

    Attributes:
        owner: A team; the empty string for images open to all teams, None for images of the home's owner.
    """

    owner: str | None

    def key(self, name: str) -> str:
        """Return the key of the image ``name`` in the catalog."""
        return name if self.owner is None else f"{_MARK}{self.owner}/{name}"

    def has(self, key: str) -> bool:
        """Whether a key of the catalog is of this realm."""
        return not is_key(key) if self.owner is None else key.startswith(self.key(""))

    def directory(self, digest: str) -> str:
        """Return the name of the directory for the digest ``sha256:…``.

        Raises:
            ImagePullError: The text is not a digest.
        """
        name = directory_name(digest)
        if self.owner is None:
            return name
        return f"sha256-{hashlib.sha256(f'{_MARK}{self.owner}/{name}'.encode()).hexdigest()}"

    def downloads(self, directory: Path, repository: str) -> Path:
        """Return the directory for unfinished downloads.

        A team may claim that its own registry has a layer of another one. Then only that team is affected by
        a slow or wrong download.
        """
        if self.owner is None:
            return directory
        return directory / f"realm-{hashlib.sha256(f'{self.owner}@{repository}'.encode()).hexdigest()[:20]}"

    @property
    def team(self) -> str | None:
        """Return the only team that may use it, if there is one."""
        return self.owner or None


def realm_of(access: ImageAccess) -> Realm:
    """Return the realm of an image that is pulled with these rights."""
    if access.team is None:
        return Realm(None)
    return Realm(access.team if access.login is not None else "")


def realms_of(access: ImageAccess) -> tuple[Realm, ...]:
    """Return the realms in which a request with these rights may find an image."""
    if access.team is None:
        return (Realm(None),)
    if access.trusted:
        return (Realm(None), Realm(""))
    return (Realm(access.team), Realm(""))


def is_key(name: str) -> bool:
    """Whether a name includes the image's owner. Only the home's owner uses such names."""
    return name.startswith(_MARK)
