"""Snapshots: named, immutable, stored states."""

from __future__ import annotations

import msgspec

from atoll.types.brief import brief
from atoll.types.egress import EgressPolicy
from atoll.types.notebook import html_of


class Snapshot(msgspec.Struct, frozen=True):
    """A snapshot to start a sandbox from: its memory and its disk.

    Args:
        id_or_name: Its id, or its name.
    """

    id_or_name: str


class SnapshotInfo(msgspec.Struct, frozen=True, repr_omit_defaults=True, kw_only=True):
    """A stored state that sandboxes can start from, fork from or roll back to.

    ``sandbox_id`` is the sandbox it was made from, which may be gone. ``parent_id`` is the snapshot that this
    sandbox was based on before. ``created_at`` is when its creation began: everything that happened before is
    in it. ``memory_bytes`` and ``disk_bytes`` are the sizes beyond its parent. ``stopped_ms`` is how long the
    guest was stopped while it was made. With ``engine_disk`` the disk is part of ``memory_bytes``.
    ``build_id`` is the template build it belongs to: the snapshot is deleted when no template needs it any
    more. ``network`` says what sandboxes made of it may reach. ``automatic`` says that atoll made it without
    a request, see ``Lifecycle.snapshot_every_s``, and will remove it.
    """

    snapshot_id: str
    name: str | None
    comment: str
    image: str
    sandbox_id: str
    parent_id: str | None
    created_at: float
    memory_bytes: int
    disk_bytes: int
    stopped_ms: float
    engine_disk: bool = False
    team: str | None = None
    build_id: str | None = None
    network: EgressPolicy = "internet"
    automatic: bool = False

    def __repr__(self) -> str:
        return brief(self, "snapshot_id", "name", "sandbox_id")

    def _repr_html_(self) -> str:
        return html_of(self)
