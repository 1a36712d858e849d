"""Directories that a layer has only as parents of its files.

The layers below know such a directory's owner and mode, but the kernel shows those of the top layer. A seam
is a further layer, on top of all, that sets them again. The puller makes it.
"""

from __future__ import annotations

import errno
import hashlib
import os
from collections.abc import Iterable, Sequence
from pathlib import Path

_IMPLIES = "overlay.atoll.implies"


def may_need_seam(layers: Iterable[Path], prefix: str) -> bool:
    """Whether one of the layers has such directories. Unpacking marks such layers.

    Args:
        prefix: The prefix of the attributes that the overlay reads: ``trusted.`` or ``user.``.
    """
    return any(_has(layer, prefix + _IMPLIES) for layer in layers)


def seam_name(layers: Sequence[str]) -> str:
    """Return the name of the seam for these layers.

    The name looks like a layer's, but no content has that digest.
    """
    return f"sha256-{hashlib.sha256(' '.join(('seam', *layers)).encode()).hexdigest()}"


def _has(path: Path, attribute: str) -> bool:
    try:
        os.getxattr(path, attribute, follow_symlinks=False)
    except OSError as error:
        if error.errno not in (errno.ENODATA, errno.ENOTSUP):
            raise
        return False
    return True
