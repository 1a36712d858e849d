"""Images as read-only roots, with mount points that they lack: for disks that an engine keeps itself."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable
from pathlib import Path, PurePosixPath

from atoll.errors import HostError
from atoll.host import Mounts, is_mounted
from atoll.snapshots.layerstore import ROOT

_POINTS = "points"
_MOST_LINKS = 40


class ImageRoots:
    """Images as roots of sandboxes whose disks the engine keeps.

    Such an engine makes missing mount points in its root. But an image is never written to: other sandboxes
    and homes use it, and its checksums tell a change from damage. So the missing directories are made beside
    it, in the sandbox's directory, and the root is an overlay of both.

    Args:
        complete: See ``Layers``.
    """

    def __init__(self, *, complete: bool) -> None:
        self._complete = complete

    def mount(self, image: Path, targets: Iterable[str], sandbox_dir: Path) -> Path:
        """Mount an image that has a directory at each of ``targets``, read-only, and return where.

        Does nothing if it is already mounted. ``Layers.unmount`` undoes it.

        Raises:
            HostError: The kernel refuses the mount, or the links of a target lead in circles.
        """
        root, points = sandbox_dir / ROOT, sandbox_dir / _POINTS
        if is_mounted(root):
            return root
        root.mkdir(mode=0o700, exist_ok=True)
        _make_points(image, targets, points)
        Mounts.overlay_read_only([image, points], root, complete=self._complete)
        return root


def _make_points(image: Path, targets: Iterable[str], beside: Path) -> None:
    """Make the directories below ``beside`` that the image lacks.

    Symbolic links of the image are followed as a guest would, never out of the image.
    """
    beside.mkdir(mode=0o755, exist_ok=True)
    for target in targets:
        place = _resolved(image, target)
        if not (image / place).is_dir():
            (beside / place).mkdir(mode=0o755, parents=True, exist_ok=True)


def _resolved(image: Path, target: str) -> PurePosixPath:
    """The target of a path in an image, relative to its root. Parts after a missing directory stay."""
    place, links = PurePosixPath(), 0
    rest = list(reversed(PurePosixPath(target).parts))
    while rest:
        name = rest.pop()
        if name == "/":
            place = PurePosixPath()
        elif name == "..":
            place = place.parent
        elif _is_link(image / place / name):
            links += 1
            if links > _MOST_LINKS:
                raise HostError(f"{target} leads in circles in the image {image}", hint="mount it elsewhere")
            rest += reversed(PurePosixPath(os.readlink(image / place / name)).parts)
        else:
            place /= name
    return place


def _is_link(path: Path) -> bool:
    try:
        return stat.S_ISLNK(os.lstat(path).st_mode)
    except (FileNotFoundError, NotADirectoryError):
        return False
