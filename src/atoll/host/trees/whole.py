"""Removes, measures and syncs whole directory trees. Nothing here follows a symlink or enters a mount."""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import stat
from collections.abc import Callable, Generator, Iterator
from pathlib import Path

from atoll.errors import HostError
from atoll.host import syscalls
from atoll.host.namespaces.mounts import mounts_below

_OPEN_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
# Well below the 4096 bytes that the kernel accepts at once.
_LONGEST_STEP = 1000
# Copying a small file takes as long as copying this many bytes of a big one.
_ENTRY_BYTES = 32 << 10


def remove_tree(path: Path, stopped: Callable[[], bool] | None = None) -> None:
    """Remove a file, or a directory with everything in it, despite its modes. A missing one is not an error.

    Args:
        stopped: Returns whether to leave the rest, which a later call can remove. Called before each removal.

    Raises:
        HostError: A mount is still below it; then nothing was removed.
        InterruptedError: It was stopped.
        OSError: The kernel refuses a removal.
    """
    try:
        found = path.lstat()
    except FileNotFoundError:
        return
    if not stat.S_ISDIR(found.st_mode):
        path.unlink(missing_ok=True)
        return
    if mounted := mounts_below(path):
        raise HostError(f"{path} cannot be removed: {mounted[0]} is still mounted", hint="try again")
    path.chmod(0o700)
    top = os.open(path, _OPEN_DIRECTORY)
    try:
        _Removal(top, stopped or _never).run()
    finally:
        os.close(top)
    path.rmdir()


def remove_entry(directory: int, name: str) -> None:
    """Remove an entry of a directory, given by its descriptor, with everything in it."""
    try:
        os.unlink(name, dir_fd=directory)
    except IsADirectoryError:
        top = _open_forced(directory, name)
        try:
            _Removal(top, _never).run()
        finally:
            os.close(top)
        os.rmdir(name, dir_fd=directory)


def tree_bytes(path: Path) -> int:
    """Return a tree's disk usage in bytes. A file with several names counts once.

    Files that vanish meanwhile are left out.
    """
    total = path.lstat().st_blocks * 512
    linked: set[int] = set()
    for found in stats_below(path):
        if not stat.S_ISDIR(found.st_mode) and found.st_nlink > 1:
            if found.st_ino in linked:
                continue
            linked.add(found.st_ino)
        total += found.st_blocks * 512
    return total


def tree_outgrows(path: Path, most_bytes: int) -> bool:
    """Whether a tree uses more than ``most_bytes`` of disk, counting 32 KiB extra for each entry.

    This stops reading the tree as soon as the answer is known.
    """
    total = 0
    with contextlib.closing(stats_below(path)) as below:
        for found in below:
            total += _ENTRY_BYTES + found.st_blocks * 512
            if total > most_bytes:
                return True
    return False


def stats_below(path: Path) -> Generator[os.stat_result, None, None]:
    """Yield the status of each name below the top of a tree. Names that vanish meanwhile are left out."""
    with open_top(path) as top:
        waiting = [""]
        while waiting:
            at = waiting.pop()
            with _unless_caught(), open_below(top, at) as fd, os.scandir(fd) as entries:
                for entry in entries:
                    found = None
                    with _unless_caught():
                        found = entry.stat(follow_symlinks=False)
                    if found is None:
                        continue
                    if stat.S_ISDIR(found.st_mode):
                        waiting.append(f"{at}/{entry.name}" if at else entry.name)
                    yield found


@contextlib.contextmanager
def _unless_caught() -> Iterator[None]:
    """Skip the block if the entry was renamed, replaced or removed before it was opened."""
    try:
        yield
    except OSError as error:
        if error.errno not in (errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.ESTALE):
            raise


def sync_tree(path: Path) -> None:
    """Make everything below ``path`` durable: its file system writes everything that it holds in memory."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        syscalls.syncfs(fd)
    finally:
        os.close(fd)


@contextlib.contextmanager
def open_top(path: Path) -> Iterator[int]:
    """Open a directory that is not a symlink."""
    fd = os.open(path, _OPEN_DIRECTORY)
    try:
        yield fd
    finally:
        os.close(fd)


@contextlib.contextmanager
def open_below(top: int, at: str) -> Iterator[int]:
    """Open the directory ``at``, a path of any length below ``top``, through no symlink.

    Raises:
        OSError: It does not exist, or is reached through a symlink (ELOOP) or a mount (EXDEV).
    """
    fd = os.dup(top) if not at else -1
    try:
        for step in _steps(at):
            deeper = syscalls.open_directory_below(top if fd < 0 else fd, step)
            if fd >= 0:
                os.close(fd)
            fd = deeper
        yield fd
    finally:
        if fd >= 0:
            os.close(fd)


def read_below(top: Path, at: str, most_bytes: int) -> bytes | None:
    """Read a regular file below ``top`` through no symlink.

    None if it does not exist or is longer than ``most_bytes``. For trees whose content is untrusted.
    """
    directory, _, name = at.rpartition("/")
    try:
        with open_top(top) as top_fd, open_below(top_fd, directory) as fd:
            flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
            with open(os.open(name, flags, dir_fd=fd), "rb") as file:
                if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                    return None
                data = file.read(most_bytes + 1)
    except OSError:
        return None
    return data if len(data) <= most_bytes else None


def _steps(at: str) -> Iterator[str]:
    # A name has at most 255 bytes, and a character at most 4, so each step stays below the kernel's limit.
    step = ""
    for name in at.split("/") if len(at) > _LONGEST_STEP else [at] if at else []:
        if step and len(step) + len(name) >= _LONGEST_STEP:
            yield step
            step = ""
        step = f"{step}/{name}" if step else name
    if step:
        yield step


class _Removal:
    """Removes everything in a directory.

    Non-empty directories are moved up to the top, so that no depth needs many descriptors or long paths.

    Args:
        top: The directory's descriptor.
        stopped: Returns whether to leave the rest. Called before each removal.
    """

    def __init__(self, top: int, stopped: Callable[[], bool]) -> None:
        self._top = top
        self._stopped = stopped
        # This prefix is unique to this removal: an earlier removal or a guest may have left similar names.
        self._prefix = f".removed-{secrets.token_hex(8)}-"
        self._count = 0

    def run(self) -> None:
        """Remove it all.

        Raises:
            InterruptedError: It was stopped.
        """
        waiting = self._empty(self._top)
        while waiting:
            name = waiting.pop()
            fd = _open_forced(self._top, name)
            try:
                waiting += self._empty(fd)
            finally:
                os.close(fd)
            os.rmdir(name, dir_fd=self._top)

    def _empty(self, directory: int) -> list[str]:
        """Remove everything in a directory except non-empty directories.

        Non-empty directories move to the top, under the returned names.
        """
        moved: list[str] = []
        with os.scandir(directory) as entries:
            found = [(entry.name, entry.is_dir(follow_symlinks=False)) for entry in entries]
        for name, is_directory in found:
            if self._stopped():
                raise InterruptedError("the removal was stopped")
            if not is_directory:
                os.unlink(name, dir_fd=directory)
                continue
            try:
                os.rmdir(name, dir_fd=directory)
            except OSError as error:
                if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                    raise
                moved.append(self._move_up(directory, name))
        return moved

    def _move_up(self, directory: int, name: str) -> str:
        if directory == self._top:
            return name
        # Moving a directory requires write access to it.
        os.close(_open_forced(directory, name))
        new = f"{self._prefix}{self._count}"
        self._count += 1
        os.rename(name, new, src_dir_fd=directory, dst_dir_fd=self._top)
        return new


def _never() -> bool:
    return False


def _open_forced(directory: int, name: str) -> int:
    """Open a directory after making sure that it can be read and changed."""
    fd = os.open(name, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=directory)
    try:
        if os.fstat(fd).st_mode & 0o700 != 0o700:
            os.chmod(f"/proc/self/fd/{fd}", 0o700)
        return os.open(".", _OPEN_DIRECTORY, dir_fd=fd)
    finally:
        os.close(fd)
