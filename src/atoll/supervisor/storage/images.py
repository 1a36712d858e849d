"""Provides images to sandboxes: by content, with the host's additions."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from atoll.errors import ImageNotFoundError, ImagePullError, InUseError
from atoll.host import to_the_end
from atoll.images import with_near_templates
from atoll.supervisor.state.inventory import Inventory
from atoll.supervisor.state.references import digests_in_use
from atoll.supervisor.storage.trust import host_extra
from atoll.types import ImageAccess, ImageInfo, Progress

if TYPE_CHECKING:
    from atoll.images import Image, Images

DEFAULT_IMAGE = "base"
# A build pulls its image and makes a sandbox of it a moment later. In between nothing else needs the image.
_JUST_ASKED_S = 60.0
FALLBACK_ENV = {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "LANG": "C.UTF-8"}


class ImageFacts(msgspec.Struct, frozen=True):
    """The facts that a sandbox takes from its image, and the certificates that the host trusts beyond it.

    ``lowers`` are the image's layers, the top one first; ``argv`` is the program that it is for. ``owners``
    are the file owners that the host could not set. ``authority`` is the home's own certificate.
    """

    digest: str
    env: dict[str, str]
    user: str
    cwd: str
    ca_pem: str | None
    lowers: tuple[Path, ...]
    argv: tuple[str, ...] = ()
    owners: tuple[tuple[str, int, int], ...] = ()
    authority: str = ""

    def trusted(self, *, host: bool) -> str | None:
        """A sandbox's certificates beyond its image: the home's authority, and with ``host`` the host's."""
        return "".join(pem for pem in (self.authority, self.ca_pem if host else None) if pem) or None


def image_is_there(images: Images, digest: str) -> bool:
    """Whether an image is complete on the disk."""
    return images.get(digest) is not None


def kept_images(images: Images, in_use: Collection[str]) -> dict[str, Image]:
    """The images that have a name or are among the digests ``in_use``, by digest."""
    digests = {info.digest for info in images.list()}
    digests |= {digest for digest in in_use if digest.startswith("sha256-")}
    found = {digest: images.get(digest) for digest in sorted(digests)}
    return {digest: image for digest, image in found.items() if image is not None}


class SupervisorImages:
    """Provides the home's images.

    Args:
        images: The images room.
        inventory: Knows which images are in use.
        boot_s: Returns the time since the host booted.
        environ: The environment, where SSL_CERT_FILE may name the host's bundle.
        authority: Returns the certificate that every sandbox trusts, as PEM; empty for none.
        templates: Returns the names of the templates that a team may use.
        take: Moves a directory out of its place, to be erased soon; None erases it at once.
    """

    def __init__(
        self,
        images: Images,
        inventory: Inventory,
        boot_s: Callable[[], float],
        environ: Mapping[str, str] | None = None,
        *,
        authority: Callable[[], str] = str,
        templates: Callable[[str | None], Collection[str]] = lambda _: (),
        take: Callable[[Path], object] | None = None,
    ) -> None:
        self._take = take
        self._templates = templates
        self._authority = authority
        self._images = images
        self._inventory = inventory
        self._boot_s = boot_s
        self._environ = os.environ if environ is None else environ
        self._facts: dict[str, ImageFacts] = {}
        self._asked: dict[str, float] = {}

    def list(self) -> list[ImageInfo]:
        """All images of the home."""
        return self._images.list()

    async def have(
        self,
        name: str,
        progress: Callable[[Progress], None],
        team: str | None = None,
        most_bytes: int | None = None,
    ) -> ImageInfo:
        """Return an image for a team, of any age. Build or pull it if it is missing.

        Args:
            most_bytes: The most bytes that it may add to the disk.

        Raises:
            ImageNotFoundError: There is no such image.
            QuotaError: The image would add more.
            ImageBuildError: Building it failed.
            ImagePullError: Pulling it failed.
        """
        access = ImageAccess(team=team)
        image = await asyncio.to_thread(self._images.found, name, access)
        if image is None:
            return await self.ensure(name, progress, access=access, most_bytes=most_bytes)
        return await self._taken(image)

    async def ensure(
        self,
        name: str,
        progress: Callable[[Progress], None],
        *,
        newest: bool = False,
        access: ImageAccess | None = None,
        most_bytes: int | None = None,
    ) -> ImageInfo:
        """Return an image: ``base`` as built today, any other as its registry has it if ``newest``.

        Args:
            access: The team that it is for, and its rights; None means the home's owner.
            most_bytes: The most bytes that it may add to the disk, if less than any image may.

        Raises:
            ImageNotFoundError: There is no such image.
            QuotaError: The image would add more than ``most_bytes``.
            ImageBuildError: Building it failed.
            ImagePullError: Pulling it failed.
        """
        access = access or ImageAccess()
        try:
            image = await self._images.ensure(
                name, progress, newest=newest, access=access, most_bytes=most_bytes
            )
        except (ImageNotFoundError, ImagePullError) as error:
            raise with_near_templates(error, name, self._templates(access.team)) from None
        return await self._taken(image)

    def info(self, name: str) -> ImageInfo:
        """An image of the home, by name or digest.

        Raises:
            ImageNotFoundError: There is no such image.
        """
        return self._get(name).info

    async def remove(self, name: str) -> None:
        """Remove a name, and give up the image if that was its last one. Its files are erased later.

        Raises:
            ImageNotFoundError: There is no such image.
            InUseError: A sandbox or snapshot uses it.
        """
        image = await asyncio.to_thread(self._get, name)

        def check() -> None:
            if image.info.digest in self.in_use() and self._images.is_only_name(name):
                raise InUseError(
                    f"image {name!r} is used by sandboxes or snapshots",
                    hint="kill the sandboxes and delete the snapshots first",
                )

        check()
        await self._images.remove(name, check, self._take)
        self._facts.pop(image.info.digest, None)
        self._asked.pop(image.info.digest, None)

    def trees_for(self, team: str) -> set[Path]:
        """The directories of the images that a team pulled."""
        return {lower for image in self._images.pulled_for(team) for lower in image.lowers}

    async def unused_by(self, team: str) -> Sequence[str]:
        """The digests of images that a team pulled and nothing needs, the least recently requested first."""
        images = await asyncio.to_thread(self._images.pulled_for, team)
        digests = [image.info.digest for image in images if not self._needs(image.info.digest)]
        return sorted(digests, key=lambda digest: self._asked.get(digest, 0.0))

    async def give_up(self, digest: str) -> bool:
        """Erase an image, unless something now needs it or images are being stacked.

        Returns whether it did.
        """
        if self._needs(digest) or not await to_the_end(asyncio.to_thread(self._images.give_up, digest)):
            return False
        self._facts.pop(digest, None)
        self._asked.pop(digest, None)
        return True

    def _needs(self, digest: str) -> bool:
        asked_s = self._asked.get(digest)
        just = asked_s is not None and self._boot_s() - asked_s < _JUST_ASKED_S
        return just or digest in self.in_use()

    async def _taken(self, image: Image) -> ImageInfo:
        self._asked[image.info.digest] = self._boot_s()
        if image.info.digest not in self._facts:
            await asyncio.to_thread(self._learn, image)
        return image.info

    async def forget_team(self, team: str) -> None:
        """Remove the private images of a team that has no sandboxes and snapshots any more."""
        await self._images.forget_team(team)

    def trees(self, names: Sequence[str]) -> dict[Path, tuple[str, ...]]:
        """The directories that images consist of, each with its images' names. No names means all images.

        Raises:
            ImageNotFoundError: There is no such image.
        """
        found: dict[Path, tuple[str, ...]] = {}
        for name in names or [info.name for info in self._images.list()]:
            for lower in self._get(name).lowers:
                found[lower] = (*found.get(lower, ()), name)
        return found

    def stood_on(self) -> set[Path]:
        """The directories that sandboxes and snapshots use."""
        digests = {one.row.image_digest for one in self._inventory.sandboxes()}
        digests |= {row.image_digest for row in self._inventory.snapshots()}
        return {lower for digest in digests for lower in self.facts(digest).lowers}

    def in_use(self) -> set[str]:
        """The digests of images that a sandbox or snapshot uses, or is about to use."""
        return digests_in_use(self._inventory)

    def unneeded(self) -> Collection[Path]:
        """Images, layers and downloads that nothing needs."""
        return self._images.unneeded(self.in_use())

    def collect(self, path: Path) -> None:
        """Erase an unneeded image, layer or download.

        Raises:
            InUseError: Something needs it now.
        """
        self._images.collect(path, self.in_use())
        self._facts.pop(path.name, None)

    def _get(self, name: str) -> Image:
        image = self._images.get(name)
        if image is None:
            raise ImageNotFoundError(f"there is no image {name!r}", hint="`atoll image ls` lists them")
        return image

    def facts(self, digest: str) -> ImageFacts:
        """The facts of the image with this digest."""
        if digest not in self._facts and (image := self._images.get(digest)):
            self._learn(image)
        return self._facts.get(digest) or ImageFacts(digest, FALLBACK_ENV, "root", "/", None, ())

    def _learn(self, image: Image) -> None:
        info = image.info
        if info.digest not in self._facts:
            ca_pem = host_extra(image.lowers, self._environ)
            argv = (*info.entrypoint, *info.cmd)
            self._facts[info.digest] = ImageFacts(
                info.digest,
                info.env,
                info.user,
                info.cwd,
                ca_pem,
                image.lowers,
                argv,
                image.owners(),
                self._authority(),
            )
