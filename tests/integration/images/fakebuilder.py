"""A program in the place of mmdebstrap."""

from __future__ import annotations

import os
from pathlib import Path

from atoll.images import Images


class FakeBuilder:
    """A program in the place of mmdebstrap, which counts its calls."""

    def __init__(self, path: Path) -> None:
        self.directory = path / "images"
        self.images = Images(self.directory)
        self._path = path

    def put(self, script: str) -> None:
        """Let the program be this shell script; ``$rootfs`` is where the image is to be."""
        programs = self._path / "programs"
        programs.mkdir(exist_ok=True)
        program = programs / "mmdebstrap"
        program.write_text(
            f"#!/bin/sh\necho called >>{self._path}/calls\n"
            f"for argument; do case $argument in */rootfs) rootfs=$argument;; esac; done\n{script}\n"
        )
        program.chmod(0o755)
        if str(programs) not in os.environ["PATH"]:
            os.environ["PATH"] = f"{programs}:{os.environ['PATH']}"

    def put_good(self) -> None:
        """Let it make an image of nearly nothing."""
        self.put(
            'mkdir -p "$rootfs/var/lib/dpkg" "$rootfs/dev"\n'
            "printf 'Package: a\\nStatus: install ok installed\\nVersion: 1\\nArchitecture: all\\n' "
            '>"$rootfs/var/lib/dpkg/status"'
        )

    @property
    def calls(self) -> int:
        """How often it was called."""
        path = self._path / "calls"
        return len(path.read_text().splitlines()) if path.exists() else 0

    def left(self) -> list[str]:
        """What lies in the directory of images."""
        return sorted(path.name for path in self.directory.iterdir())
