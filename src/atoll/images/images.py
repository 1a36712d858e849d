"""The images of a home."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Collection, Sequence
from pathlib import Path

import msgspec

from atoll.errors import HostError, ImageNotFoundError, InUseError
from atoll.host import TreeChecksums, one_id, remove_tree, sync_tree, to_the_end, tree_bytes
from atoll.images.build import apt_config, build
from atoll.images.catalog import BUILDING, ROOTFS, Catalog, Image, Named, try_lock
from atoll.images.holding import held
from atoll.images.pull import Pulls, Stacking
from atoll.images.puller import PullSettings
from atoll.images.ready import ReadyBase
from atoll.images.realm import Realm, is_key, realms_of
from atoll.images.recipe import BASE, CWD, ENV, USER, Recipe, digest, installed_packages
from atoll.images.reference import image_name, is_digest
from atoll.images.sources import recipe_of_host, suite_of_host
from atoll.types import ImageAccess, ImageInfo, Progress

HOST_ACCESS = ImageAccess()
_ETC = Path("/etc")
_LOCK = ".lock"


class Images:
    """The images of one home, by name: ``base``, which is built here, and images of registries.

    Builds run in a temporary directory, one at a time for all processes. The next build removes the leftovers
    of a crashed one.

    Args:
        directory: The place of the images. It may be a symbolic link, so that homes can share images.
        settings: How images are pulled from registries.
        stacking: How layers are stacked in this home.
        ready: The archive that ``base`` is unpacked from; None builds it.
    """

    def __init__(
        self,
        directory: Path,
        settings: PullSettings | None = None,
        stacking: Stacking = "trusted",
        ready: ReadyBase | None = None,
    ) -> None:
        self._directory = directory
        self._catalog = Catalog(directory)
        self._pulls = Pulls(self._catalog, settings or PullSettings(), stacking)
        self._ready = ready

    def list(self) -> list[ImageInfo]:
        """Return the images that have a name, sorted by name."""
        return self._catalog.list()

    def get(self, name: str) -> Image | None:
        """Return the image with that name or digest; None if it is not here.

        Raises:
            InvalidSpecError: The name is not valid for an image.
        """
        return self._catalog.get(image_name(name))

    def found(self, name: str, access: ImageAccess) -> Image | None:
        """Return the image with that name or digest if these rights allow its use.

        None if there is none here.

        Raises:
            InvalidSpecError: The name is not valid for an image.
        """
        name = image_name(name)
        if name == BASE:
            return self.get(name)
        if not (is_digest(name) or is_key(name)):
            keys = [realm.key(name) for realm in realms_of(access)]
            return next((image for image in map(self.get, keys) if image), None)
        image = self.get(name)
        if image is None or access.team is None:
            return image
        return image if is_digest(name) and image.info.team in (None, access.team) else None

    async def ensure(
        self,
        name: str,
        progress: Callable[[Progress], None],
        *,
        newest: bool = False,
        access: ImageAccess = HOST_ACCESS,
        most_bytes: int | None = None,
    ) -> Image:
        """Return the image with that name. A missing one is built or pulled first.

        ``base`` is built again if its recipe has changed. If several callers ask at once, in any processes,
        one of them does the work and the others wait. Cancelling ends the work.

        Args:
            progress: Called with each report of the work.
            newest: Ask the registry for its current image of that name. With credentials this always happens.
            access: The team and its rights.
            most_bytes: The most bytes that it may add to the disk, if less than any image may have.

        Raises:
            InvalidSpecError: The name is not valid for an image.
            QuotaError: The image would add more than ``most_bytes``.
            ImageNotFoundError: The registry has no such image.
            ImageBuildError: The build failed; the hint says what to do.
            ImagePullError: The registry returned no image, or an invalid one.
            UnsupportedError: There is no image for this machine.
            HostError: This host lacks something that a build needs.
        """
        name = image_name(name)
        if name != BASE:
            newest = newest or access.login is not None
            if is_digest(name) or is_key(name):
                return self._kept(name, access)
            image = None if newest else self.found(name, access)
            return image or await self._pulls.pull(
                name, progress, access, newest=newest, most_bytes=most_bytes
            )
        ready = self._ready
        # The fingerprint does not depend on how this host reaches its mirror, so that need not be known here.
        fingerprint = ready.about.fingerprint if ready else Recipe(suite=suite_of_host(_ETC)).fingerprint()
        if image := self._current(fingerprint):
            return image
        progress = self._headed(progress)
        async with held(self._directory / _LOCK, progress, "waiting for another build"):
            if image := self._current(fingerprint):
                return image
            async with self._aside() as aside:
                if ready:
                    await ready.unpack(aside, progress)
                else:
                    await _build(aside, progress)
                return await asyncio.to_thread(self._keep, fingerprint, aside)

    @contextlib.asynccontextmanager
    async def unpacked_again(
        self, digest: str, progress: Callable[[Progress], None]
    ) -> AsyncIterator[Path | None]:
        """Unpack the files of an image once more, in a directory of their own that is erased afterwards.

        Gives None if the installed packages do not contain that image.

        Raises:
            ImageBuildError: The archive is damaged.
            NoSpaceError: The disk is full.
        """
        if self._ready is None or self._ready.about.digest != digest:
            yield None
            return
        async with held(self._directory / _LOCK, progress, "waiting for a build"), self._aside() as aside:
            await self._ready.unpack(aside, progress)
            yield aside / ROOTFS

    def _kept(self, name: str, access: ImageAccess) -> Image:
        if image := self.found(name, access):
            return image
        raise ImageNotFoundError(f"there is no image {name!r}", hint="`atoll image ls` lists them")

    def pulled_for(self, team: str) -> Sequence[Image]:
        """Return the images that a team had pulled, oldest first; none where homes share their images."""
        return self._catalog.pulled_for(team)

    def give_up(self, digest: str) -> bool:
        """Erase an image with all its names, unless images are being stacked now.

        Returns whether it was erased.
        """
        fd = try_lock(self._pulls.layers_lock)
        if fd is None:
            return False
        try:
            for path in self._catalog.remove(digest):
                remove_tree(path)
        finally:
            os.close(fd)
        return True

    async def forget_team(self, team: str) -> None:
        """Forget the images that only this team may use."""
        own = Realm(team).key("")
        for name in [name for name in self._catalog.names() if name.startswith(own)]:
            with contextlib.suppress(ImageNotFoundError):
                await self.remove(name)

    def is_only_name(self, name: str) -> bool:
        """Whether removing that name or digest erases the image."""
        return self._catalog.is_only_name(image_name(name))

    async def remove(
        self,
        name: str,
        check: Callable[[], None] | None = None,
        take: Callable[[Path], object] | None = None,
    ) -> None:
        """Forget that name, and erase the image if it was its last name.

        Args:
            check: Raises if something needs the image. This is called after any wait for a pull, because that
                may have changed things.
            take: Moves a directory out of its place, to be erased later. None erases it before this returns.

        Raises:
            ImageNotFoundError: No image has that name.
        """
        async with held(self._pulls.layers_lock, _nothing, ""):
            if check is not None:
                check()
            for path in await asyncio.to_thread(self._catalog.remove, image_name(name)):
                if take is not None:
                    take(path)
                else:
                    await asyncio.to_thread(remove_tree, path)

    def unneeded(self, in_use: Collection[str]) -> Collection[Path]:
        """Return unneeded paths. Returns none while a pull may use them, or where homes share images.

        Args:
            in_use: Digests of images that are needed even without a name.
        """
        fd = try_lock(self._pulls.layers_lock)
        if fd is None:
            return []
        try:
            return self._catalog.unneeded(in_use)
        finally:
            os.close(fd)

    def collect(self, path: Path, in_use: Collection[str]) -> None:
        """Erase one of the unneeded paths.

        Raises:
            InUseError: Something needs the path by now.
        """
        fd = try_lock(self._pulls.layers_lock)
        try:
            if fd is None or path not in self._catalog.unneeded(in_use):
                raise InUseError(f"{path} is needed by now")
            if path.parent == self._directory:
                self._catalog.erase(path.name)
            else:
                TreeChecksums(path.parent).drop([path.name])
                remove_tree(path)
        finally:
            if fd is not None:
                os.close(fd)

    def _headed(self, progress: Callable[[Progress], None]) -> Callable[[Progress], None]:
        """Return a function that passes reports on with a heading: the work, and why it happens just once."""
        is_first = BASE not in self._catalog.names()
        why = (
            "for the first sandbox of this home"
            if is_first
            else "again, as this version of atoll has another"
        )
        what = "unpacking" if self._ready else "building"
        takes = "" if self._ready else "this takes minutes, and "
        heading = f"{what} the image base {why}: {takes}later sandboxes do not wait for it"
        return lambda report: progress(msgspec.structs.replace(report, heading=heading))

    def _current(self, fingerprint: str) -> Image | None:
        named = self._catalog.names().get(BASE)
        return self.get(BASE) if named and named.fingerprint == fingerprint else None

    @contextlib.asynccontextmanager
    async def _aside(self) -> AsyncIterator[Path]:
        """Make a directory for an image that is being made, and erase those of earlier attempts."""
        for stale in self._directory.glob(f"{BUILDING}*"):
            await asyncio.to_thread(remove_tree, stale)
        aside = Path(tempfile.mkdtemp(prefix=BUILDING, dir=self._directory))
        try:
            yield aside
        finally:
            if aside.exists():  # noqa: ASYNC240  # one look at a name
                await to_the_end(asyncio.to_thread(remove_tree, aside))

    def _keep(self, fingerprint: str, aside: Path) -> Image:
        rootfs = aside / ROOTFS
        name = digest(fingerprint, installed_packages((rootfs / "var/lib/dpkg/status").read_text()))
        info = ImageInfo(
            name=BASE,
            digest=name,
            size_bytes=tree_bytes(rootfs),
            created_at=time.time(),
            user=USER,
            cwd=CWD,
            env=dict(ENV),
        )
        for device in (rootfs / "dev").iterdir():
            remove_tree(device)
        sync_tree(rootfs)
        target = self._directory / name
        if not self._catalog.has_record(name):
            if target.exists():
                remove_tree(target)
            os.rename(aside, target)
            self._catalog.record(info)
        self._catalog.name(BASE, Named(digest=name, fingerprint=fingerprint))
        image = self.get(BASE)
        assert image, "just written"
        return image


def _nothing(_: Progress) -> None:
    """Ignore a progress report."""


async def _build(aside: Path, progress: Callable[[Progress], None]) -> None:
    _check_host()
    recipe = recipe_of_host(_ETC, await apt_config())
    await build(recipe, aside / ROOTFS, aside, progress)
    for name in recipe.files():
        (aside / name).unlink()


def _check_host() -> None:
    if one_id():
        raise HostError(
            "this user has only one id, and building an image needs many",
            hint="run: pip install 'atoll[base]', which contains the image; or see `atoll doctor`",
        )
    missing = [program for program in ("mmdebstrap", "unshare") if not shutil.which(program)]
    if missing:
        raise HostError(
            f"building an image needs {' and '.join(missing)}",
            hint="run: pip install 'atoll[base]', which contains the image; or: sudo apt install mmdebstrap uidmap",
        )
