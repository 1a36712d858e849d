"""Reads and writes the files of volumes without a sandbox. Guests own these files, so none is trusted."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import posixpath
import stat
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from typing import TypeVar

from atoll.errors import (
    AtollError,
    FileDeniedError,
    FileError,
    FileMissingError,
    FileTakenError,
    InvalidSpecError,
    IsADirectoryInSandboxError,
    NoSpaceError,
    NotADirectoryInSandboxError,
)
from atoll.host import Owner, RootedEntry, RootedTree, to_the_end
from atoll.supervisor.state.inventory import Inventory
from atoll.supervisor.storage.volume_lists import VolumeLists
from atoll.types import FileKind, VolumeEntry

_T = TypeVar("_T")
DEPTH_MOST = 64
ENTRIES_MOST = 100_000
# Each character may take six bytes in the answer, and clients read at most 64 MiB.
CHARS_MOST = 8 << 20
_PATH_MOST_BYTES = 4096
_NUMBER_MOST = 0xFFFFFFFE
_PIECE_BYTES = 256 << 10
_KINDS: dict[int, FileKind] = {stat.S_IFREG: "file", stat.S_IFDIR: "directory", stat.S_IFLNK: "symlink"}
_ERRORS: dict[int, type[AtollError]] = {
    errno.ENOENT: FileMissingError,
    errno.EEXIST: FileTakenError,
    errno.ENOTDIR: NotADirectoryInSandboxError,
    errno.EISDIR: IsADirectoryInSandboxError,
    errno.EACCES: FileDeniedError,
    errno.EPERM: FileDeniedError,
    errno.ENOSPC: NoSpaceError,
    errno.EDQUOT: NoSpaceError,
}


@dataclass(eq=False, repr=False)
class VolumeFiles:
    """Accesses the files of one volume. Every method raises the fitting error of ``atoll.errors``.

    Args:
        volume_id: The volume.
    """

    volume_id: str
    tree: RootedTree
    inventory: Inventory
    lists: VolumeLists

    async def stat(self, path: str) -> VolumeEntry:
        """Describe an entry. A symbolic link is not followed."""
        path = plain(path)
        return _entry(await self._do(path, lambda: self.tree.stat(path)))

    async def list(self, path: str, depth: int) -> list[VolumeEntry]:
        """List a directory down to ``depth`` levels."""
        path = plain(path)
        if not 1 <= depth <= DEPTH_MOST:
            raise InvalidSpecError(f"depth is {depth}", hint=f"give 1 to {DEPTH_MOST}")

        def work() -> list[VolumeEntry]:
            found = self.tree.list(path, depth=depth, most=ENTRIES_MOST, most_chars=CHARS_MOST)
            return [_entry(each) for each in found]

        async with self.lists.turn(self.volume_id):
            return await self._do(path, work)

    async def mkdir(self, path: str, *, parents: bool, mode: int | None, owner: Owner) -> VolumeEntry:
        """Make a directory. With ``parents``, also make those above it, and accept an existing one."""
        path = plain(path)
        _check(mode, owner)
        made = await self._do(
            path, lambda: self.tree.make_directory(path, parents=parents, mode=mode, owner=owner)
        )
        return _entry(made)

    async def set_attributes(self, path: str, *, mode: int | None, owner: Owner) -> VolumeEntry:
        """Change the mode and owner of a file or directory; None leaves the old value."""
        path = plain(path)
        _check(mode, owner)
        return _entry(await self._do(path, lambda: self.tree.set_attributes(path, mode=mode, owner=owner)))

    async def remove(self, path: str) -> None:
        """Remove an entry and everything in it."""
        path = plain(path)
        if path == "/":
            raise InvalidSpecError("the root of a volume cannot be removed", hint="delete the volume")
        await self._do(path, lambda: self.tree.remove(path))

    async def read(self, path: str) -> AsyncIterator[bytes]:
        """Iterate over the bytes of a regular file. The first step opens it."""
        path = plain(path)
        with self.inventory.pins.during(self.volume_id), _told(path):
            # This must not be in a thread: a caller that is cancelled meanwhile would leave the file open.
            fd = self.tree.open_file(path)
            try:
                while piece := await asyncio.to_thread(os.read, fd, _PIECE_BYTES):
                    yield piece
            finally:
                os.close(fd)

    async def write(
        self,
        path: str,
        pieces: AsyncIterator[bytes],
        *,
        parents: bool,
        replace: bool,
        mode: int | None,
        owner: Owner,
    ) -> VolumeEntry:
        """Replace a file's content in one step once all pieces have come. It is durable when this returns."""
        path = plain(path)
        _check(mode, owner)
        with self.inventory.pins.during(self.volume_id):
            await self._do(path, lambda: self._prepare(path, parents, replace, owner))
            with _told(path):
                aside, fd = self.tree.begin_file()
            try:
                async for piece in pieces:
                    await self._do(path, lambda: _write_all(fd, piece))  # noqa: B023 - awaited at once
                written = (aside, fd)
                return _entry(
                    await self._do(
                        path,
                        lambda: self.tree.end_file(written, path, replace=replace, mode=mode, owner=owner),
                    )
                )
            finally:
                os.close(fd)
                aside.unlink(missing_ok=True)

    def _prepare(self, path: str, parents: bool, replace: bool, owner: Owner) -> None:
        """Refuse a path that cannot become a file before all of its content has been sent."""
        if parents:
            self.tree.make_above(path, owner)
        try:
            there = self.tree.stat(path)
        except FileNotFoundError:
            self.tree.stat(posixpath.dirname(path))
            return
        if stat.S_ISDIR(there.status.st_mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
        if not replace:
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), path)

    async def _do(self, path: str, work: Callable[[], _T]) -> _T:
        """Do blocking work in a thread, to its end even if the caller is cancelled."""
        with self.inventory.pins.during(self.volume_id), _told(path):
            return await to_the_end(asyncio.to_thread(work))


def plain(path: str) -> str:
    """The absolute, normal form of a path from a client.

    Raises:
        InvalidSpecError: The path is invalid.
    """
    if "\0" in path or len(path.encode(errors="surrogatepass")) > _PATH_MOST_BYTES:
        raise InvalidSpecError("a path has a NUL or more than 4096 bytes")
    try:
        path.encode()
    except UnicodeEncodeError:
        raise InvalidSpecError("a path is not text") from None
    return posixpath.normpath(f"/{path.lstrip('/')}")


def _check(mode: int | None, owner: Owner) -> None:
    if mode is not None and not 0 <= mode <= 0o7777:
        raise InvalidSpecError(f"mode is {mode:o} (octal)", hint="give permission bits, 0 to 7777")
    for name, number in (("uid", owner.uid), ("gid", owner.gid)):
        if number is not None and not 0 <= number <= _NUMBER_MOST:
            raise InvalidSpecError(f"{name} is {number}", hint="give a number of a user or group")


@contextlib.contextmanager
def _told(path: str) -> Iterator[None]:
    try:
        yield
    except AtollError:
        raise
    except OSError as error:
        kind = _ERRORS.get(error.errno or 0, FileError)
        raise kind(f"{path}: {error.strerror or error}") from None


def _write_all(fd: int, piece: bytes) -> None:
    rest = memoryview(piece)
    while rest:
        rest = rest[os.write(fd, rest) :]


def _entry(seen: RootedEntry) -> VolumeEntry:
    status = seen.status
    path = _text(seen.path)
    return VolumeEntry(
        name=posixpath.basename(path) or "/",
        path=path,
        kind=_KINDS.get(stat.S_IFMT(status.st_mode), "other"),
        size_bytes=status.st_size,
        mode=stat.S_IMODE(status.st_mode),
        uid=status.st_uid,
        gid=status.st_gid,
        accessed_at=status.st_atime,
        modified_at=status.st_mtime,
        changed_at=status.st_ctime,
        target=None if seen.target is None else _text(seen.target),
    )


def _text(name: str) -> str:
    """A name as text. Bytes that are not UTF-8 are replaced."""
    return os.fsencode(name).decode(errors="replace")
