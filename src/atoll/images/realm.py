"""Whose images are whose: what one team pulled with its credentials leads no other to a file of it."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path

from atoll.images.reference import directory_name
from atoll.types import ImageAccess

_MARK = "@"


@dataclass(frozen=True)
class Realm:
    """Images that share layers, and those who may use them.

    Nothing of one realm is found from another: not by an image's digest, and not by that of a layer, of which anybody
    who makes an image can claim that it is in there.

    Attributes:
        owner: A team; the empty string for what is open to all teams, None for what the home's owner has.
    """

    owner: str | None

    def key(self, name: str) -> str:
        """What the catalog calls the image of that name."""
        return name if self.owner is None else f"{_MARK}{self.owner}/{name}"

    def directory(self, digest: str) -> str:
        """The name of the directory for what has the digest ``sha256:…``.

        Raises:
            ImagePullError: It is no digest.
        """
        name = directory_name(digest)
        if self.owner is None:
            return name
        return f"sha256-{hashlib.sha256(f'{_MARK}{self.owner}/{name}'.encode()).hexdigest()}"

    def downloads(self, directory: Path, repository: str) -> Path:
        """Where what is on its way lies.

        Teams may claim that their own registry has a layer of another one: how slowly it comes, and whether it is
        what it should be, is then nobody else's concern.
        """
        if self.owner is None:
            return directory
        return directory / f"realm-{hashlib.sha256(f'{self.owner}@{repository}'.encode()).hexdigest()[:20]}"

    @property
    def team(self) -> str | None:
        """The one team that it is for."""
        return self.owner or None


def realm_of(access: ImageAccess) -> Realm:
    """Where an image goes that is pulled with these rights."""
    if access.team is None:
        return Realm(None)
    return Realm(access.team if access.login is not None else "")


def realms_of(access: ImageAccess) -> tuple[Realm, ...]:
    """Where an image may be that is asked for with these rights."""
    if access.team is None:
        return (Realm(None),)
    if access.trusted:
        return (Realm(None), Realm(""))
    return (Realm(access.team), Realm(""))


def is_key(name: str) -> bool:
    """Whether a name says whose image it is, as only the home's owner does."""
    return name.startswith(_MARK)
