"""The paths of a machine's files in its state directory."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
from collections.abc import Iterator
from pathlib import Path


class MachinePaths:
    """Paths of one machine. ``console`` has the output of process 1, ``log`` the messages of runsc."""

    def __init__(self, state_dir: Path) -> None:
        self.bundle = state_dir / "bundle"
        self.config = self.bundle / "config.json"
        self.runsc = state_dir / "runsc"
        self.console = state_dir / "console.log"
        self.log = state_dir / "runsc.log"

    def make(self) -> None:
        """Make the directories, and remove an earlier machine's leftovers from them."""
        shutil.rmtree(self.runsc, ignore_errors=True)
        self.log.unlink(missing_ok=True)
        for directory in (self.bundle, self.runsc):
            directory.mkdir(mode=0o700, exist_ok=True)

    def control_socket(self, machine_id: str) -> Path:
        """Return the path of the sentry's socket, which may be longer than a socket's address can be."""
        return self.runsc / f"runsc-{machine_id}.sock"


@contextlib.contextmanager
def open_directory(path: Path, *, at_least: int = 0) -> Iterator[int]:
    """Open the directory, for paths below /proc/self/fd, with the descriptor ``at_least`` or a higher one."""
    fd = os.open(path, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        if at_least:
            low, fd = fd, fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, at_least)
            os.close(low)
        yield fd
    finally:
        os.close(fd)
