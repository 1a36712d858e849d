"""A little room that is kept free, so that a full disk keeps nobody from killing and deleting."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from atoll.host import free_bytes

BALLAST = "ballast"
_BYTES = 4 << 20
_PLENTY_BYTES = 64 << 20
_FULL_BYTES = 1 << 20


class EmergencyReserve:
    """A file that takes room until that room is needed.

    Args:
        path: Where it lies, on the file system of the home.
    """

    def __init__(self, path: Path) -> None:
        self._path = path

    def begin(self) -> None:
        """Take the room while there is plenty; give it back when there is none, for whoever begins on a full disk."""
        with contextlib.suppress(OSError):
            if free_bytes(self._path.parent) < _FULL_BYTES:
                self.drop()
        self.load()

    def load(self) -> None:
        """Take the room while there is plenty, if it was given back."""
        with contextlib.suppress(OSError):  # without it, things go on as long as there is room
            if not self._path.exists() and free_bytes(self._path.parent) > _PLENTY_BYTES:
                fd = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
                try:
                    os.posix_fallocate(fd, 0, _BYTES)
                finally:
                    os.close(fd)

    def drop(self) -> bool:
        """Give the room back; whether there was any."""
        try:
            self._path.unlink()
        except OSError:
            return False
        return True
