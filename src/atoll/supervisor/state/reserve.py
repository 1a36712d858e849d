"""Keeps a little disk space in reserve, so that killing and deleting work on a full disk."""

from __future__ import annotations

import contextlib
import os
from dataclasses import dataclass
from pathlib import Path

from atoll.host import free_bytes

BALLAST = "ballast"
_BYTES = 4 << 20
_PLENTY_BYTES = 64 << 20
_FULL_BYTES = 1 << 20


@dataclass(eq=False, repr=False)
class EmergencyReserve:
    """A file that occupies space until that space is needed.

    Args:
        path: The file, on the file system of the home.
    """

    path: Path

    def begin(self) -> None:
        """Fill the reserve while there is plenty of space.

        Free it if there is none, to start on a full disk.
        """
        with contextlib.suppress(OSError):
            if free_bytes(self.path.parent) < _FULL_BYTES:
                self.drop()
        self.load()

    def load(self) -> None:
        """Fill the reserve again while there is plenty of space, if it was freed."""
        with contextlib.suppress(OSError):  # without the reserve, things work as long as there is space
            if not self.path.exists() and free_bytes(self.path.parent) > _PLENTY_BYTES:
                fd = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
                try:
                    os.posix_fallocate(fd, 0, _BYTES)
                finally:
                    os.close(fd)

    def drop(self) -> bool:
        """Free the reserve. Returns whether there was any."""
        try:
            self.path.unlink()
        except OSError:
            return False
        return True
