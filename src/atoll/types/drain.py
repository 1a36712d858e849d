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

    ``suspended`` has the ids of the sandboxes that it suspended, and ``sandboxes`` those that will run again
    when the drain ends. ``failed`` has a message by id for each sandbox that still runs.
    """

    since: float | None
    suspended: list[str]
    failed: dict[str, str]
    sandboxes: list[str]


class UndrainReport(msgspec.Struct, frozen=True, kw_only=True):
    """The result of the end of a drain. ``failed`` has a message by id for each sandbox that still sleeps."""

    woken: list[str]
    failed: dict[str, str]
