"""The images of a home."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import shutil
import tempfile
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import msgspec

from atoll.errors import HostError, ImageNotFoundError
from atoll.host import remove_tree, sync_tree, tree_bytes, write_atomically
from atoll.images.build import apt_config, build
from atoll.images.recipe import BASE, CWD, ENV, USER, Recipe, digest, installed_packages
from atoll.images.sources import recipe_of_host, suite_of_host
from atoll.types import ImageInfo, Progress

_ETC = Path("/etc")
_RECORD = "image.json"
_INDEX = "index.json"
_LOCK = ".lock"
_BUILDING = "build-"
_LOCK_POLL_S = 0.2


class Image(msgspec.Struct, frozen=True, kw_only=True):
    """An image that is complete on the disk. ``rootfs`` never changes."""

    info: ImageInfo
    rootfs: Path


class _Entry(msgspec.Struct, frozen=True, kw_only=True):
    digest: str
    fingerprint: str


class Images:
    """The images of one home, by name.

    An image is a directory ``sha256-…`` with ``rootfs`` and, written last, ``image.json``; ``index.json``
    says which digest a name has. Builds are done aside, one at a time for all processes, and what a crashed
    one left is removed by the next.

    Args:
        directory: Where the images lie; it may be a symbolic link, so that homes can share images.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def list(self) -> list[ImageInfo]:
        """The images that have a name, by name."""
        return [image.info for name in sorted(self._index()) if (image := self.get(name))]

    def get(self, name: str) -> Image | None:
        """The image of that name or digest; None when it is not there."""
        entry = self._index().get(name)
        wanted = entry.digest if entry else name
        if not wanted.startswith("sha256-") or "/" in wanted:
            return None
        try:
            info = msgspec.json.decode((self._directory / wanted / _RECORD).read_bytes(), type=ImageInfo)
        except (FileNotFoundError, msgspec.DecodeError):
            return None
        return Image(info=info, rootfs=self._directory / wanted / "rootfs")

    async def ensure(self, name: str, progress: Callable[[Progress], None]) -> Image:
        """The image of that name, built first if it is missing or if its recipe has changed since.

        Of two callers at once, in whatever processes, one builds and the other waits. Cancelling ends a
        build.

        Args:
            progress: Called with each report of a build.

        Raises:
            ImageNotFoundError: It is not there, and it is none that atoll can build.
            ImageBuildError: The build failed; the hint says what to do.
            HostError: This host lacks what a build needs.
        """
        if name != BASE:
            if image := self.get(name):
                return image
            raise ImageNotFoundError(
                f"no image is called {name!r}", hint=f"the image that atoll can build is {BASE!r}"
            )
        # How this host reaches its mirror is not in the fingerprint, so need not be asked for this.
        fingerprint = Recipe(suite=suite_of_host(_ETC)).fingerprint()
        if image := self._current(fingerprint):
            return image
        async with self._lock(progress):
            recipe = recipe_of_host(_ETC, await apt_config())
            return self._current(fingerprint) or await self._build(recipe, progress)

    def remove(self, name: str) -> None:
        """Forget the image of that name and erase it. The caller has seen to it that nothing needs it.

        Raises:
            ImageNotFoundError: No image has that name.
        """
        image = self.get(name)
        if not image:
            raise ImageNotFoundError(
                f"no image is called {name!r}", hint="`atoll image list` lists the images"
            )
        index = {key: entry for key, entry in self._index().items() if entry.digest != image.info.digest}
        self._write_index(index)
        # The record goes first: without it, what is left of the directory is no image.
        (self._directory / image.info.digest / _RECORD).unlink()
        remove_tree(self._directory / image.info.digest)

    def _current(self, fingerprint: str) -> Image | None:
        entry = self._index().get(BASE)
        return self.get(BASE) if entry and entry.fingerprint == fingerprint else None

    async def _build(self, recipe: Recipe, progress: Callable[[Progress], None]) -> Image:
        _check_programs()
        for stale in self._directory.glob(f"{_BUILDING}*"):
            await asyncio.to_thread(remove_tree, stale)
        aside = Path(tempfile.mkdtemp(prefix=_BUILDING, dir=self._directory))
        try:
            await build(recipe, aside / "rootfs", aside, progress)
            return await asyncio.to_thread(self._keep, recipe, aside)
        finally:
            if aside.exists():
                await asyncio.shield(asyncio.to_thread(remove_tree, aside))

    def _keep(self, recipe: Recipe, aside: Path) -> Image:
        rootfs = aside / "rootfs"
        fingerprint = recipe.fingerprint()
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
        for source in recipe.files():
            (aside / source).unlink()
        for device in (rootfs / "dev").iterdir():
            remove_tree(device)
        sync_tree(rootfs)
        target = self._directory / name
        if not (target / _RECORD).exists():
            if target.exists():
                remove_tree(target)
            os.rename(aside, target)
            write_atomically(target / _RECORD, msgspec.json.encode(info))
        self._write_index({**self._index(), BASE: _Entry(digest=name, fingerprint=fingerprint)})
        image = self.get(BASE)
        assert image, "just written"
        return image

    def _index(self) -> dict[str, _Entry]:
        try:
            return msgspec.json.decode((self._directory / _INDEX).read_bytes(), type=dict[str, _Entry])
        except (FileNotFoundError, msgspec.DecodeError):
            return {}

    def _write_index(self, index: dict[str, _Entry]) -> None:
        write_atomically(self._directory / _INDEX, msgspec.json.encode(index))

    @contextlib.asynccontextmanager
    async def _lock(self, progress: Callable[[Progress], None]) -> AsyncIterator[None]:
        self._directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        fd = os.open(self._directory / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        waiting = False
        try:
            while True:
                try:
                    fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except BlockingIOError:
                    if not waiting:
                        progress(Progress(step="waiting for another build"))
                    waiting = True
                    await asyncio.sleep(_LOCK_POLL_S)
            yield
        finally:
            os.close(fd)


def _check_programs() -> None:
    missing = [program for program in ("mmdebstrap", "unshare") if not shutil.which(program)]
    if missing:
        raise HostError(
            f"building an image needs {' and '.join(missing)}",
            hint="apt-get install mmdebstrap util-linux uidmap",
        )
