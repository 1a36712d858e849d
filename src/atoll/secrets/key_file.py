"""Keeps the key of the secrets in a file that only its user can read."""

from __future__ import annotations

import contextlib
import os
import stat
import tempfile
from pathlib import Path

from atoll.errors import HostError
from atoll.host import sync_directory
from atoll.secrets.sealing import KEY_BYTES

_TEXT_BYTES = 2 * KEY_BYTES


class KeyFile:
    """A key of 64 hexadecimal digits in a file. The file may be a symbolic link to another disk.

    Args:
        path: The file.
    """

    def __init__(self, path: Path) -> None:
        self._path = path

    @property
    def place(self) -> str:
        """The file's path."""
        return str(self._path)

    def read(self) -> bytes | None:
        """Return the key, or None if there is no file.

        Raises:
            HostError: Other users can read the file, it belongs to another user, or it has no key.
        """
        try:
            # Without waiting: a pipe in its place would hold the supervisor.
            descriptor = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise HostError(
                f"{self._path} cannot be read: {error.strerror}", hint="check its owner"
            ) from None
        try:
            self._check(os.fstat(descriptor))
            data = os.read(descriptor, _TEXT_BYTES + 2)
        finally:
            os.close(descriptor)
        return self._decoded(data)

    def create(self) -> bytes:
        """Make the file if it is missing, and return the key. The file is on the disk when this returns.

        Raises:
            HostError: The file cannot be made, or the existing file cannot be used.
        """
        if (key := self.read()) is not None:
            return key
        try:
            self._make(os.urandom(KEY_BYTES).hex().encode() + b"\n")
        except OSError as error:
            raise HostError(
                f"{self._path} cannot be written: {error.strerror}", hint="check the disk and its rights"
            ) from None
        made = self.read()
        if made is None:
            raise HostError(f"{self._path} has vanished", hint="check what removes files there")
        return made

    def _make(self, data: bytes) -> None:
        descriptor, aside = tempfile.mkstemp(prefix=f".{self._path.name}.", dir=self._path.parent)
        try:
            with open(descriptor, "wb") as file:
                os.fchmod(file.fileno(), 0o600)
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            # Unlike a rename, this never replaces a key that something is sealed with.
            with contextlib.suppress(FileExistsError):
                os.link(aside, self._path)
        finally:
            os.unlink(aside)
        sync_directory(self._path.parent)

    def _check(self, found: os.stat_result) -> None:
        if not stat.S_ISREG(found.st_mode):
            raise HostError(f"{self._path} is not a file", hint="remove it")
        if found.st_uid != os.geteuid():
            raise HostError(
                f"{self._path} belongs to user {found.st_uid}, not to this user",
                hint="use no key that somebody else made: remove it, and create the secrets again",
            )
        if found.st_mode & 0o077:
            raise HostError(
                f"{self._path} is open to other users: its mode is {stat.S_IMODE(found.st_mode):04o}",
                hint=f"if nobody has read it: chmod 600 {self._path}",
            )

    def _decoded(self, data: bytes) -> bytes:
        with contextlib.suppress(ValueError):
            key = bytes.fromhex(data.decode("ascii"))
            if len(key) == KEY_BYTES:
                return key
        raise HostError(f"{self._path} has no key in it", hint="bring it back from a backup, or remove it")
