"""The image ``base`` from the package atoll-base: an archive that only has to be unpacked."""

from __future__ import annotations

import asyncio
import hashlib
import lzma
import tarfile
import threading
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path

import msgspec

from atoll.errors import ImageBuildError, NoSpaceError
from atoll.host import free_bytes, one_id
from atoll.images.owners import Owner, write_owners
from atoll.types import Progress
from atoll.types.internal import from_json

PACKAGE = "atoll_base"
ARCHIVE = "base.tar.xz"
ABOUT = "base.json"
_SPARE_BYTES = 64 << 20
_TELL_EVERY = 100
# The fraction of the time that the checksum takes.
_CHECKED = 0.05


class About(msgspec.Struct, frozen=True, kw_only=True):
    """The package's description of its archive. ``machine`` is the processor, as in ``uname -m``."""

    fingerprint: str
    digest: str
    machine: str
    archive_sha256: str
    size_bytes: int
    files: int


class ReadyBase(msgspec.Struct, frozen=True):
    """An archive of ``base``: a tar of the root directory, compressed with xz, with numeric owners."""

    about: About
    archive: Path

    async def unpack(self, image: Path, progress: Callable[[Progress], None]) -> None:
        """Make ``rootfs`` in the directory ``image``. Cancelling stops this and leaves the files so far.

        Raises:
            ImageBuildError: The archive is damaged.
            NoSpaceError: The disk is full.
        """
        if free_bytes(image) < self.about.size_bytes + _SPARE_BYTES:
            raise NoSpaceError(
                f"the image base takes {self.about.size_bytes >> 20} MiB, which {image.parent} does not have free",
                hint="free some space, or set ATOLL_HOME to a larger disk",
            )
        loop = asyncio.get_running_loop()

        def tell(report: Progress) -> None:
            loop.call_soon_threadsafe(progress, report)

        stop = threading.Event()
        work = asyncio.ensure_future(asyncio.to_thread(self._unpack, image, tell, stop))
        try:
            await asyncio.shield(work)
        except asyncio.CancelledError:
            stop.set()
            await asyncio.gather(work, return_exceptions=True)
            raise

    def _unpack(self, image: Path, tell: Callable[[Progress], None], stop: threading.Event) -> None:
        self._verify(tell)
        owners: list[Owner] = []
        try:
            with tarfile.open(self.archive, "r|xz", errorlevel=2) as tar:
                # The package is as trusted as this one, so take links and owners as they are.
                tar.extraction_filter = lambda member, _: member
                members = self._members(tar, owners, tell, stop)
                (image / "rootfs").mkdir()
                tar.extractall(image / "rootfs", members=members, numeric_owner=True)
        except (tarfile.TarError, lzma.LZMAError, EOFError) as error:
            raise self._damaged(str(error)) from error
        write_owners(image, owners)

    def _verify(self, tell: Callable[[Progress], None]) -> None:
        tell(Progress(step="checking the archive of the image", whole=0.0))
        with self.archive.open("rb") as file:
            found = hashlib.file_digest(file, "sha256").hexdigest()
        if found != self.about.archive_sha256:
            raise self._damaged("its checksum does not match")

    def _members(
        self,
        tar: tarfile.TarFile,
        owners: list[Owner],
        tell: Callable[[Progress], None],
        stop: threading.Event,
    ) -> Iterator[tarfile.TarInfo]:
        alone = one_id()
        for count, member in enumerate(tar):
            if stop.is_set():
                return
            if alone and (member.uid or member.gid):
                owners.append((member.name, member.uid, member.gid))
                member.uid = member.gid = 0
            if count % _TELL_EVERY == 0:
                total = self.about.files
                done = min(count, total)
                whole = _CHECKED + (1 - _CHECKED) * done / max(1, total)
                tell(Progress(step="unpacking the image", done=done, total=total, unit="files", whole=whole))
            yield member

    def _damaged(self, why: str) -> ImageBuildError:
        return ImageBuildError(
            f"the archive {self.archive} is damaged: {why}",
            hint="run: pip install --force-reinstall --no-deps atoll-base",
        )


def ready_base(machine: str) -> ReadyBase | None:
    """Return the archive of the installed package atoll-base for this processor; None if there is none."""
    found = find_spec(PACKAGE)
    if found is None or found.origin is None:
        return None
    directory = Path(found.origin).parent
    try:
        about = from_json((directory / ABOUT).read_bytes(), About)
    except (OSError, ValueError):
        return None
    return ReadyBase(about, directory / ARCHIVE) if about.machine == machine else None
