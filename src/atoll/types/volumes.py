"""Volumes: directories that outlive sandboxes and can be mounted in any number of them."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from atoll.types.files import FileKind
from atoll.types.notebook import html_of


class VolumeInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A volume. Its name is unique within its team; a ``team`` of None is no team. Times are Unix seconds."""

    volume_id: str
    name: str
    team: str | None
    created_at: float

    def _repr_html_(self) -> str:
        return html_of(self)


class VolumeEntry(msgspec.Struct, frozen=True, repr_omit_defaults=True, kw_only=True):
    """A file in a volume, seen without a sandbox. ``path`` begins with ``/``, which is the volume's root.

    ``uid`` and ``gid`` are numbers, since a volume has no user names. ``changed_at`` is when its attributes
    changed.
    """

    name: str
    path: str
    kind: FileKind
    size_bytes: Annotated[int, Meta(ge=0)]
    mode: Annotated[int, Meta(ge=0, le=0o7777)]
    uid: int
    gid: int
    accessed_at: float
    modified_at: float
    changed_at: float
    target: str | None = None
