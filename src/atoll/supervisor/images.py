"""Images as sandboxes need them: by content, with what the host adds."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import msgspec

from atoll.errors import ImageNotFoundError, InUseError
from atoll.supervisor.ownership import digests_in_use
from atoll.supervisor.table import Table
from atoll.supervisor.trust import host_extra
from atoll.types import ImageInfo, Progress

if TYPE_CHECKING:
    from atoll.images import Image, Images

DEFAULT_IMAGE = "base"
FALLBACK_ENV = {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "LANG": "C.UTF-8"}


class ImageFacts(msgspec.Struct, frozen=True):
    """What a sandbox takes from its image, and the certificates that the host trusts beyond it."""

    digest: str
    env: dict[str, str]
    user: str
    cwd: str
    ca_pem: str | None


class ImageShelf:
    """The home's images.

    Args:
        images: The images room.
        table: Who uses them.
        environ: Where SSL_CERT_FILE may name the host's bundle.
    """

    def __init__(self, images: Images, table: Table, environ: Mapping[str, str] | None = None) -> None:
        self._images = images
        self._table = table
        self._environ = os.environ if environ is None else environ
        self._facts: dict[str, ImageFacts] = {}

    def list(self) -> list[ImageInfo]:
        """All that are there."""
        return self._images.list()

    async def have(self, name: str, progress: Callable[[Progress], None]) -> ImageInfo:
        """Have an image of that name, of whatever age, building it when it is missing.

        Raises:
            ImageNotFoundError: Nobody knows how to build that one.
            ImageBuildError: Building it failed.
        """
        image = self._images.get(name)
        if image is None:
            return await self.ensure(name, progress)
        self._learn(image)
        return image.info

    async def ensure(self, name: str, progress: Callable[[Progress], None]) -> ImageInfo:
        """Have an image as it is built today, building it when it is missing or its recipe has changed.

        Raises:
            ImageNotFoundError: Nobody knows how to build that one.
            ImageBuildError: Building it failed.
        """
        image = await self._images.ensure(name, progress)
        self._learn(image)
        return image.info

    def remove(self, name: str) -> None:
        """Erase an image.

        Raises:
            ImageNotFoundError: There is none of that name.
            InUseError: A sandbox or snapshot stands on it.
        """
        image = self._images.get(name)
        if image is None:
            raise ImageNotFoundError(
                f"there is no image {name!r}", hint="`atoll image list` shows those there are"
            )
        if image.info.digest in digests_in_use(self._table):
            raise InUseError(
                f"image {name!r} is used by sandboxes or snapshots", hint="kill and delete those first"
            )
        self._images.remove(name)
        self._facts.pop(image.info.digest, None)

    def facts(self, digest: str) -> ImageFacts:
        """What sandboxes take from the image with that content."""
        if digest not in self._facts and (image := self._images.get(digest)):
            self._learn(image)
        return self._facts.get(digest) or ImageFacts(digest, FALLBACK_ENV, "root", "/", None)

    def _learn(self, image: Image) -> None:
        info = image.info
        if info.digest not in self._facts:
            ca_pem = host_extra(image.rootfs, self._environ)
            self._facts[info.digest] = ImageFacts(info.digest, info.env, info.user, info.cwd, ca_pem)
