"""Tells whether a sandbox has changed since its last snapshot, and when the next one is due. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

# A guest that waits uses 0.4 % of a processor for its clock and its agent, and the shortest command 0.1 s.
_IDLE_SHARE = 0.0075
_IDLE_S = 0.01
# The time that a snapshot itself takes; more for much memory.
_SNAPSHOT_S = 0.3
# The memory that an idle kernel takes and gives back.
_IDLE_BYTES = 16 << 20
# Failures in a row double the pause, up to this.
_PAUSE_MOST_S = 3600.0
# Snapshots take at most this share of the time, however often they are asked for.
_SHARE = 0.1


class ActivityReading(NamedTuple):
    """A machine's usage at one moment; None where nothing counts it."""

    at_s: float
    cpu_s: float | None
    memory_bytes: int | None
    disk_bytes: int | None = None


def has_worked(before: ActivityReading, now: ActivityReading) -> bool:
    """Whether a machine has done more between two readings than a waiting one does."""
    if before.cpu_s is None or now.cpu_s is None:
        return True
    return now.cpu_s - before.cpu_s > _IDLE_S + _IDLE_SHARE * (now.at_s - before.at_s)


def may_have_worked(before: ActivityReading, now: ActivityReading) -> bool:
    """Whether a machine may have worked during its snapshot, less the snapshot's own processor time."""
    return now.cpu_s is not None and has_worked(before, now._replace(cpu_s=now.cpu_s - _SNAPSHOT_S))


def has_grown(before: ActivityReading, now: ActivityReading) -> bool:
    """Whether its memory has grown, or its disk has changed its size."""
    grown_bytes = (now.memory_bytes or 0) - (before.memory_bytes or 0)
    return grown_bytes > _IDLE_BYTES or now.disk_bytes != before.disk_bytes


@dataclass(eq=False, repr=False)
class SnapshotDue:
    """When the next snapshot of a sandbox is due, in seconds of a clock that never jumps.

    Args:
        since_s: When the last one was made, or its life began.
    """

    since_s: float
    _least_s: float = field(default=0.0, init=False)
    _failures: int = field(default=0, init=False)

    def is_due(self, every_s: float, now_s: float) -> bool:
        """Whether the time has passed."""
        return now_s >= self.since_s + every_s and now_s >= self._least_s

    def made(self, now_s: float, took_s: float = 0.0) -> None:
        """Note that there is one now."""
        self.since_s, self._failures = now_s, 0
        self._least_s = now_s + took_s / _SHARE

    def failed(self, every_s: float, now_s: float) -> None:
        """Note that it could not be made: the next try is later each time."""
        self._failures += 1
        self._least_s = now_s + min(every_s * 2.0 ** min(self._failures, 32), max(every_s, _PAUSE_MOST_S))
