"""Drains: all sandboxes asleep, as before a reboot."""

from __future__ import annotations

import msgspec


class DrainInfo(msgspec.Struct, frozen=True, kw_only=True):
    """Whether the home is drained, since when, and the ids of the sandboxes that will run again afterwards."""

    drained: bool
    since: float | None = None
    sandboxes: list[str] = []


class DrainReport(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a drain.

    ``suspended`` are the ids of those that it suspended. ``failed`` has a message for each id of one that still
    runs. ``sandboxes`` will run again when the drain ends.
    """

    since: float | None
    suspended: list[str]
    failed: dict[str, str]
    sandboxes: list[str]


class UndrainReport(msgspec.Struct, frozen=True, kw_only=True):
    """The result of the end of a drain. ``failed`` has a message for each id of one that still sleeps."""

    woken: list[str]
    failed: dict[str, str]
