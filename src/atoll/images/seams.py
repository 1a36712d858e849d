"""Directories that a layer names only by what is in them.

Whose such a directory is, and its mode, the layers below say, but the kernel shows what the top one has. One more layer
on top of all, a seam, says it again.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator, Sequence
from pathlib import Path, PurePath

_OPAQUE, _IMPLIED = "overlay.opaque", "overlay.atoll.implied"
_PLAIN = (0o755, 0, 0)


class Seam:
    """What a stack of layers shows otherwise than its layers say.

    Args:
        layers: The layers, the top one first.
        prefix: Of the attributes that the overlay reads: ``trusted.`` or ``user.``.
    """

    def __init__(self, layers: Sequence[Path], prefix: str) -> None:
        self._layers = layers
        self._opaque, self._implied = prefix + _OPAQUE, prefix + _IMPLIED

    def directories(self) -> list[PurePath]:
        """The directories to be said again."""
        implied = {path for layer in self._layers for path in self._implied_of(layer)}
        return sorted(path for path in implied if self._differs(path))

    def write(self, directories: Sequence[PurePath], into: Path) -> None:
        """Make the layer that says them again, in an empty directory."""
        wanted = {above for path in directories for above in (path, *path.parents)} - {PurePath()}
        for path in sorted(wanted):
            (into / path).mkdir()
        for path in sorted(wanted, reverse=True):
            if (said := self._said(path)) is not None:
                _copy(said, into / path)
            else:
                (into / path).chmod(0o755)

    def _implied_of(self, layer: Path) -> Iterator[PurePath]:
        for name, _, _ in os.walk(layer):
            if _has(name, self._implied):
                yield PurePath(name).relative_to(layer)

    def _differs(self, path: PurePath) -> bool:
        shown = next(self._stacked(path), None)
        said = self._said(path)
        return shown is not None and said is not None and shown != said and _facts(said) != _PLAIN

    def _said(self, path: PurePath) -> Path | None:
        """The topmost of those that are stacked there that its layer has itself."""
        return next((one for one in self._stacked(path) if not _has(one, self._implied)), None)

    def _stacked(self, path: PurePath) -> Iterator[Path]:
        """The directories that the kernel shows as one there, the top one first."""
        for layer in self._layers:
            found, is_last = layer, False
            for part in path.parts:
                # What an opaque one hides is in it; whose it is itself, layers below may say all the same.
                is_last = is_last or _has(found, self._opaque)
                found = found / part
                try:
                    if not stat.S_ISDIR(found.lstat().st_mode):
                        return
                except FileNotFoundError:
                    break
            else:
                yield found
            if is_last:
                return


def _facts(directory: Path) -> tuple[int, int, int]:
    found = directory.lstat()
    return stat.S_IMODE(found.st_mode), found.st_uid, found.st_gid


def _has(path: str | Path, attribute: str) -> bool:
    try:
        os.getxattr(path, attribute, follow_symlinks=False)
    except OSError as error:
        if error.errno not in (errno.ENODATA, errno.ENOTSUP):
            raise
        return False
    return True


def _copy(said: Path, target: Path) -> None:
    found = said.lstat()
    os.chown(target, found.st_uid, found.st_gid)
    target.chmod(stat.S_IMODE(found.st_mode))
    for key in os.listxattr(said):
        if key.startswith("user.") and not key.startswith("user.overlay."):
            os.setxattr(target, key, os.getxattr(said, key))
    os.utime(target, ns=(found.st_mtime_ns, found.st_mtime_ns))
