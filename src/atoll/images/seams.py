"""Directories that a layer names only by what is in them.

Whose such a directory is, and its mode, the layers below say, but the kernel shows what the top one has. One more layer
on top of all, a seam, says it again; the puller makes it.
"""

from __future__ import annotations

import errno
import hashlib
import os
from collections.abc import Iterable, Sequence
from pathlib import Path

_IMPLIES = "overlay.atoll.implies"


def may_need_seam(layers: Iterable[Path], prefix: str) -> bool:
    """Whether one of them has such directories, by the mark that unpacking has left on it.

    Args:
        prefix: Of the attributes that the overlay reads: ``trusted.`` or ``user.``.
    """
    return any(_has(layer, prefix + _IMPLIES) for layer in layers)


def seam_name(layers: Sequence[str]) -> str:
    """The name of the layer that lies on these: like theirs, but of no content that could be asked for."""
    return f"sha256-{hashlib.sha256(' '.join(('seam', *layers)).encode()).hexdigest()}"


def _has(path: Path, attribute: str) -> bool:
    try:
        os.getxattr(path, attribute, follow_symlinks=False)
    except OSError as error:
        if error.errno not in (errno.ENODATA, errno.ENOTSUP):
            raise
        return False
    return True
