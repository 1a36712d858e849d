"""The catalog of a home's images, on the disk."""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path

import msgspec

from atoll.errors import ImageNotFoundError
from atoll.host import TreeChecksums, locked, remove_tree, write_atomically
from atoll.images.owners import Owner, read_owners
from atoll.types import ImageInfo
from atoll.types.internal import from_json

ROOTFS = "rootfs"
BUILDING = "build-"
_RECORD = "image.json"
_INDEX = "index.json"
_INDEX_LOCK = ".index.lock"
_KEEP_DOWNLOADS_S = 24 * 3600.0


class Image(msgspec.Struct, frozen=True, kw_only=True):
    """An image that is complete on the disk.

    ``lowers`` are its layers, the top layer first. Layers never change.
    """

    info: ImageInfo
    lowers: tuple[Path, ...]

    def owners(self) -> tuple[Owner, ...]:
        """Return the files with owners other than root that the host could not set; the guest sets them."""
        return () if self.info.layers else read_owners(self.lowers[0].parent)


class Named(msgspec.Struct, frozen=True, kw_only=True):
    """The target of a name. ``fingerprint`` is the recipe's if the image was built."""

    digest: str
    fingerprint: str = ""


class Catalog:
    """Names, records and files of images.

    An image is a directory ``sha256-…`` with ``image.json``, which is written last. Its files are in
    ``rootfs`` there, or in the directories in ``layers`` that its record names. ``index.json`` maps names to
    digests.

    Args:
        directory: Where everything is. It may be a symbolic link, so that homes can share images.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.layers = directory / "layers"
        self.downloads = directory / "downloads"

    def list(self) -> list[ImageInfo]:
        """Return the images that have a name, sorted by name.

        An image with several names appears several times.
        """
        names = sorted(self.names())
        images = [(name, self.get(name)) for name in names]
        return [msgspec.structs.replace(image.info, name=name) for name, image in images if image]

    def get(self, name: str) -> Image | None:
        """Return the image with that name or digest; None if it is not here."""
        named = self.names().get(name)
        wanted = named.digest if named else name
        if not wanted.startswith("sha256-") or "/" in wanted:
            return None
        try:
            info = from_json((self.directory / wanted / _RECORD).read_bytes(), ImageInfo)
        except (FileNotFoundError, ValueError):
            return None
        if not info.layers:
            return Image(info=info, lowers=(self.directory / wanted / ROOTFS,))
        lowers = tuple(self.layers / layer for layer in top_first(info.layers))
        return Image(info=info, lowers=lowers) if all(lower.is_dir() for lower in lowers) else None

    def pulled_for(self, team: str) -> Sequence[Image]:
        """Return the images that a team had pulled, oldest first, even if they lost their names.

        Returns nothing where homes share their images, because each home has its own teams.
        """
        if self.directory.is_symlink():
            return []
        images = [self.get(path.name) for path in self.directory.glob("sha256-*")]
        found = [image for image in images if image and image.info.pulled_for == team]
        return sorted(found, key=lambda image: image.info.created_at)

    def names(self) -> dict[str, Named]:
        """Return the target of each name."""
        try:
            return from_json((self.directory / _INDEX).read_bytes(), dict[str, Named])
        except (FileNotFoundError, ValueError):
            return {}

    def record(self, info: ImageInfo) -> None:
        """Turn the files in the image's directory, or in the layers that ``info`` names, into an image."""
        target = self.directory / info.digest
        target.mkdir(mode=0o700, exist_ok=True)
        write_atomically(target / _RECORD, msgspec.json.encode(info))

    def has_record(self, digest: str) -> bool:
        """Whether the image with that digest is complete."""
        return (self.directory / digest / _RECORD).exists()

    def name(self, name: str, named: Named) -> None:
        """Make a name refer to an image from now on."""
        with self._changed_names() as names:
            names[name] = named

    def is_only_name(self, name: str) -> bool:
        """Whether the image would be lost with this name, which is its digest or its only name."""
        names = self.names()
        if name not in names:
            return True
        return not any(other != name and named.digest == names[name].digest for other, named in names.items())

    def remove(self, name: str) -> Sequence[Path]:
        """Forget a name. If it was the image's last name, or its digest, forget the image too.

        Returns the directories to erase, which only that image has. The caller holds the lock on layers and
        has checked that nothing needs the image. Where homes share their images, another home may need it:
        then only names are forgotten.

        Raises:
            ImageNotFoundError: No image has that name.
        """
        image = self.get(name)
        if not image:
            raise ImageNotFoundError(f"no image is called {name!r}", hint="`atoll image ls` lists the images")
        is_only = self.is_only_name(name)
        with self._changed_names() as names:
            for other, named in list(names.items()):
                if other == name or is_only and named.digest == image.info.digest:
                    del names[other]
        if not is_only or self.directory.is_symlink():
            return []
        directory = self._forget(image.info.digest)
        layers = sorted(set(image.info.layers) - self._layers_needed())
        return [directory, *(self._aside(layer) for layer in layers)]

    def erase(self, digest: str) -> None:
        """Erase an image's record, and its files if they are in no layers."""
        remove_tree(self._forget(digest))

    def _forget(self, digest: str) -> Path:
        # The record goes first: without it, the rest of the directory is not an image.
        (self.directory / digest / _RECORD).unlink(missing_ok=True)
        return self.directory / digest

    def unneeded(self, in_use: Collection[str], *, now_s: float | None = None) -> Sequence[Path]:
        """Return unneeded paths: images without a name, layers of no image, and stale files.

        Downloads and half-written checksums are stale after a day without progress. Returns nothing where
        homes share their images. The caller holds the lock on layers.

        Args:
            in_use: Digests of images that are needed even without a name.
        """
        if self.directory.is_symlink():
            return []
        named = {each.digest for each in self.names().values()} | set(in_use)
        images = [path for path in self.directory.glob("sha256-*") if path.name not in named]
        kept = self._layers_needed(without={path.name for path in images})
        layers = [path for path in _entries(self.layers) if path.name not in kept]
        before_s = (time.time() if now_s is None else now_s) - _KEEP_DOWNLOADS_S
        passing = [*_entries(self.downloads), *TreeChecksums(self.layers).halves()]
        old = [path for path in passing if path.lstat().st_mtime < before_s]
        return sorted([*images, *layers, *old])

    def _layers_needed(self, without: Collection[str] = ()) -> set[str]:
        digests = [path.name for path in self.directory.glob("sha256-*") if path.name not in without]
        return {layer for digest in digests for layer in self._layers_of(digest)}

    def _layers_of(self, digest: str) -> Sequence[str]:
        try:
            data = (self.directory / digest / _RECORD).read_bytes()
            return from_json(data, ImageInfo).layers
        except (FileNotFoundError, ValueError):
            return []

    def _aside(self, layer: str) -> Path:
        # Renamed first, so that a crash leaves no layer with a part missing.
        aside = self.layers / f"{BUILDING}{layer}"
        with contextlib.suppress(FileNotFoundError):
            os.rename(self.layers / layer, aside)
        TreeChecksums(self.layers).drop([layer])
        return aside

    @contextlib.contextmanager
    def _changed_names(self) -> Iterator[dict[str, Named]]:
        with locked(self.directory / _INDEX_LOCK):
            names = self.names()
            yield names
            write_atomically(self.directory / _INDEX, msgspec.json.encode(names))


def top_first(layers: Sequence[str]) -> list[str]:
    """Return an image's layers in stacking order, each once.

    The kernel stacks a directory only once. If a layer appears several times, as empty ones often do, the top
    one is enough: it hides everything that the lower one has.
    """
    return list(dict.fromkeys(reversed(layers)))


def _entries(directory: Path) -> list[Path]:
    try:
        return [path for path in directory.iterdir() if not path.name.startswith(".")]
    except FileNotFoundError:
        return []


def try_lock(path: Path) -> int | None:
    """Return a descriptor with the exclusive lock on a file, which is made if missing.

    None if another process has it. The owner of the lock may remove the file.
    """
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    while True:
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(fd)
            return None
        if os.fstat(fd).st_nlink:
            return fd
        os.close(fd)
