"""Keeps checksums of a checkpoint's files, so that a damaged memory is never restored."""

from __future__ import annotations

import contextlib
import os
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec

from atoll.errors import DamagedError
from atoll.host import CheckedTree, boot_id, write_atomically
from atoll.types import Damage
from atoll.types.internal import from_json

CHECKSUMS_FILE = "checksums.json"
BOOT = "boot"
_BLOCK_BYTES = 1 << 20
# Of a larger file, only its ends and every 16th block are read: reading all of it would take as long as the
# wake.
_WHOLE_BLOCKS = 512
PARTLY_BYTES = _WHOLE_BLOCKS * _BLOCK_BYTES
_END_BLOCKS = 64
_STRIDE = 16
_SMALL_BYTES = 4 << 20
_KNOWN_MOST = 4096


_Identity = tuple[int, int, int, int]


class FileChecksums(msgspec.Struct, frozen=True):
    """Size and CRC-32 of each file, by its name."""

    files: dict[str, tuple[int, int]]


class CheckpointChecksums:
    """Writes and checks checksums. A file that was good once is read again only after it has changed."""

    def __init__(self) -> None:
        self._whole: dict[_Identity, int] = {}

    def write(self, checkpoint: Path) -> None:
        """Write the checksums of a checkpoint's files to the disk, unless it has them already. Blocks.

        Raises:
            OSError: The disk is full or broken.
        """
        if (checkpoint / CHECKSUMS_FILE).exists():
            return
        files = {path.name: (path.stat().st_size, self._summed(path)) for path in _files(checkpoint)}
        # An incomplete list of checksums would reject a memory that is intact.
        write_atomically(checkpoint / CHECKSUMS_FILE, msgspec.json.encode(FileChecksums(files)))

    def check(self, checkpoint: Path, *, small: bool) -> bool:
        """Compare either the small or the big files of a checkpoint with its checksums. Blocks.

        Returns False if it has no checksums. A checkpoint that was never flushed and has none is valid until
        the host restarts.

        Raises:
            DamagedError: A file is missing, or has changed.
        """
        try:
            checksums = from_json((checkpoint / CHECKSUMS_FILE).read_bytes(), FileChecksums)
        except FileNotFoundError:
            _check_boot(checkpoint)
            return False
        except (OSError, ValueError) as error:
            raise _damaged(checkpoint / CHECKSUMS_FILE, str(error)) from None
        for name, (size, wanted) in checksums.files.items():
            if (size <= _SMALL_BYTES) == small:
                self._compare(checkpoint / name, size, wanted)
        return True

    def examine(self, checkpoint: Path, came: Callable[[int], None]) -> CheckedTree | None:
        """Compare all files of a checkpoint with its checksums, reading them from the disk. Blocks.

        Returns None if it has no checksums.

        Args:
            came: Called with the number of bytes checked so far.

        Raises:
            OSError: The checksums cannot be read.
        """
        try:
            checksums = from_json((checkpoint / CHECKSUMS_FILE).read_bytes(), FileChecksums)
        except FileNotFoundError:
            if checkpoint.is_dir():
                return None
            return CheckedTree(0, 0, [Damage(path=".", what="it is missing")], 1)
        except ValueError as error:
            return CheckedTree(
                0,
                0,
                [Damage(path=CHECKSUMS_FILE, what=f"the file of checksums itself is damaged: {error}")],
                1,
            )
        done, damages = 0, []
        for name, (size, wanted) in checksums.files.items():
            if what := _difference(checkpoint / name, size, wanted):
                damages.append(Damage(path=name, what=what))
            done += size
            came(done)
        return CheckedTree(len(checksums.files), done, damages, len(damages))

    def _summed(self, path: Path) -> int:
        """The checksum of a file, which may also belong to an earlier checkpoint."""
        identity = _identity(path.stat())
        if (known := self._whole.get(identity)) is not None:
            return known
        found = _sum(path)
        self._note(identity, found)
        return found

    def _compare(self, path: Path, size: int, wanted: int) -> None:
        try:
            status = path.stat()
            identity = _identity(status)
            if status.st_size != size:
                raise _damaged(path, f"it has {status.st_size} bytes instead of {size}")
            if self._whole.get(identity) != wanted and _sum(path) != wanted:
                raise _damaged(path, "its content has changed")
        except OSError as error:
            if isinstance(error, DamagedError):
                raise
            raise _damaged(path, error.strerror or str(error)) from None
        self._note(identity, wanted)

    def _note(self, identity: _Identity, known: int) -> None:
        while len(self._whole) >= _KNOWN_MOST:
            self._whole.pop(next(iter(self._whole)), None)
        self._whole[identity] = known


def recorded(checkpoint: Path) -> dict[str, tuple[int, int]]:
    """The size and checksum of each file of a checkpoint; nothing if they cannot be read."""
    try:
        return from_json((checkpoint / CHECKSUMS_FILE).read_bytes(), FileChecksums).files
    except (OSError, ValueError):
        return {}


def differs(path: Path, size: int, wanted: int) -> bool:
    """Whether a file on the disk differs from its checksum. Blocks."""
    return _difference(path, size, wanted) is not None


def _difference(path: Path, size: int, wanted: int) -> str | None:
    """How a file on the disk differs from its checksum; None if it does not."""
    try:
        with path.open("rb") as file:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
            found = os.fstat(file.fileno()).st_size
        if found != size:
            return f"it has {found} bytes instead of {size}"
        return None if _sum(path) == wanted else "its content has changed"
    except FileNotFoundError:
        return "it is missing"
    except OSError as error:
        return f"it cannot be read: {error.strerror}"


def note_boot(checkpoint: Path) -> None:
    """Record in an unflushed checkpoint which boot of the host wrote it.

    It may be lost when the host goes down.
    """
    (checkpoint / BOOT).write_text(boot_id())


def _identity(status: os.stat_result) -> _Identity:
    return status.st_dev, status.st_ino, status.st_mtime_ns, status.st_size


def _check_boot(checkpoint: Path) -> None:
    with contextlib.suppress(FileNotFoundError):
        if (checkpoint / BOOT).read_bytes() != boot_id().encode():
            raise _damaged(checkpoint, "it was not yet on the disk when the host went down")


def _damaged(path: Path, how: str) -> DamagedError:
    return DamagedError(
        f"{path} is damaged: {how}",
        hint="this memory cannot be restored: use another snapshot, or start from the disk",
    )


def _files(checkpoint: Path) -> Iterator[Path]:
    for path in sorted(checkpoint.iterdir()):
        if path.is_file() and path.name != CHECKSUMS_FILE and not path.name.startswith("."):
            yield path


def _sum(path: Path) -> int:
    """CRC-32 of a file's content, or of parts of a very big file."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    try:
        total, buffer = 0, memoryview(bytearray(_BLOCK_BYTES))
        for block in _blocks(-(-os.fstat(fd).st_size // _BLOCK_BYTES)):
            # Read, not mapped: with a mapping, a failing disk would end the supervisor with SIGBUS.
            read = os.preadv(fd, [buffer], block * _BLOCK_BYTES)
            total = zlib.crc32(buffer[:read], total)
        return total
    finally:
        os.close(fd)


def _blocks(count: int) -> Iterator[int]:
    for block in range(count):
        at_an_end = block < _END_BLOCKS or block >= count - _END_BLOCKS
        if count <= _WHOLE_BLOCKS or at_an_end or block % _STRIDE == 0:
            yield block
