"""Objects as files of a directory."""

from __future__ import annotations

import builtins
import contextlib
import errno
import hashlib
import os
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path

from atoll.errors import AtollError, NoSpaceError, StoreConflictError, StoreError
from atoll.host import locked, sync_directory
from atoll.store.objects import MissingObjectError, Objects, StoredObject, Versioned, checked_name

_ASIDE = ".new-"
_LOCK = ".lock"


class DirectoryObjects(Objects):
    """A store in a directory, which several supervisors of one user may share.

    Args:
        directory: Its place. It is made when something is written.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    @property
    def place(self) -> str:
        """The directory's path."""
        return str(self._directory)

    def read(self, name: str, start: int = 0, size: int | None = None) -> bytes:
        """See ``Objects.read``."""
        with self._errors(name):
            with open(self._path(name), "rb") as file:
                file.seek(start)
                return file.read(-1 if size is None else size)

    def versioned(self, name: str) -> Versioned | None:
        """See ``Objects.versioned``."""
        try:
            data = self.read(name)
        except MissingObjectError:
            return None
        return Versioned(data, _tag(data))

    def put(self, name: str, data: bytes) -> None:
        """See ``Objects.put``."""
        with self._errors(name), self._aside(name, data) as aside:
            os.replace(aside, self._path(name))

    def create(self, name: str, data: bytes) -> str:
        """See ``Objects.create``."""
        with self._errors(name), self._aside(name, data) as aside, locked(self._directory / _LOCK):
            try:
                os.link(aside, self._path(name))
            except FileExistsError:
                raise StoreConflictError(f"the store has {name} already") from None
        return _tag(data)

    def replace(self, name: str, data: bytes, tag: str) -> str:
        """See ``Objects.replace``."""
        with self._errors(name), self._aside(name, data) as aside, locked(self._directory / _LOCK):
            found = self.versioned(name)
            if found is None or found.tag != tag:
                raise StoreConflictError(f"{name} was changed in the store in the meantime")
            os.replace(aside, self._path(name))
        return _tag(data)

    def remove(self, names: Iterable[str]) -> None:
        """See ``Objects.remove``."""
        changed = set()
        for name in names:
            path = self._path(name)
            with self._errors(name), contextlib.suppress(FileNotFoundError), locked(self._directory / _LOCK):
                path.unlink()
                changed.add(path.parent)
        for directory in changed:
            with self._errors(directory.name):
                sync_directory(directory)

    def list(self, prefix: str) -> Iterator[StoredObject]:
        """See ``Objects.list``."""
        waiting = [self._path(prefix)]
        while waiting:
            try:
                with self._errors(prefix):
                    entries = builtins.list(os.scandir(waiting.pop()))
            except MissingObjectError:
                continue
            for entry in entries:
                if entry.name.startswith("."):
                    continue
                if entry.is_dir(follow_symlinks=False):
                    waiting.append(Path(entry.path))
                    continue
                with contextlib.suppress(FileNotFoundError):
                    name = Path(entry.path).relative_to(self._directory).as_posix()
                    yield StoredObject(name, entry.stat(follow_symlinks=False).st_size)

    def _path(self, name: str) -> Path:
        return self._directory / checked_name(name)

    @contextlib.contextmanager
    def _aside(self, name: str, data: bytes) -> Iterator[str]:
        """A durable file with the content, under another name. The caller gives it its own inside the block."""
        parent = self._path(name).parent
        _make(parent)
        descriptor, aside = tempfile.mkstemp(prefix=_ASIDE, dir=parent)
        try:
            with open(descriptor, "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            yield aside
        finally:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(aside)
        sync_directory(parent)

    @contextlib.contextmanager
    def _errors(self, name: str) -> Iterator[None]:
        try:
            yield
        except AtollError:
            raise
        except (FileNotFoundError, NotADirectoryError):
            raise MissingObjectError(name) from None
        except OSError as error:
            if error.errno in (errno.ENOSPC, errno.EDQUOT):
                raise NoSpaceError(f"the disk of the store {self._directory} is full") from None
            raise StoreError(
                f"{name} of the store {self._directory}: {error.strerror}",
                hint="check the directory's disk and rights",
            ) from None


def _make(directory: Path) -> None:
    """Make a directory with those above it, so that a power cut takes none of them away."""
    if directory.is_dir():
        return
    _make(directory.parent)
    with contextlib.suppress(FileExistsError):
        directory.mkdir(mode=0o700)
    sync_directory(directory.parent)


def _tag(data: bytes) -> str:
    return hashlib.blake2b(data, digest_size=16).hexdigest()
