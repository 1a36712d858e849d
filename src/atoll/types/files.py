"""Files inside a sandbox."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

FileKind = Literal["file", "directory", "symlink", "other"]
WatchKind = Literal["create", "write", "remove", "rename", "chmod"]


class FileInfo(msgspec.Struct, frozen=True, repr_omit_defaults=True, kw_only=True):
    """What ``stat`` and ``list`` return for a file. A symlink is followed only on request.

    ``modified_at`` is in Unix seconds.
    """

    name: str
    path: str
    kind: FileKind
    size_bytes: Annotated[int, Meta(ge=0)]
    mode: Annotated[int, Meta(ge=0, le=0o7777)]
    owner: str
    group: str
    modified_at: float
    target: str | None = None


class WatchEvent(msgspec.Struct, frozen=True, kw_only=True):
    """A change to ``path``, which is relative to the watched directory."""

    kind: WatchKind
    path: str
