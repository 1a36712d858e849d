"""The effect of an upgrade of the engine on sleeping sandboxes and snapshots."""

from __future__ import annotations

from typing import Literal

import msgspec


class EngineUse(msgspec.Struct, frozen=True, kw_only=True):
    """A sandbox or snapshot whose memory was made by an engine other than the installed one.

    ``engine_version`` is empty where it was not recorded. ``kept`` says that the home has that program: the
    memory wakes with it. Without it, only the disk can be started.
    """

    kind: Literal["sandbox", "snapshot"]
    id: str
    name: str | None
    engine: str
    engine_version: str
    kept: bool


class UpgradeReport(msgspec.Struct, frozen=True, kw_only=True):
    """The installed engine, and the sandboxes and snapshots of other engines."""

    engine: str
    engine_version: str
    others: list[EngineUse]
