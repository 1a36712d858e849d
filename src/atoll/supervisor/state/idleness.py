"""Judges how idle a sandbox is. No clock, no tasks and no input or output: only readings, moments and lengths."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from atoll.types import Idle, Lifecycle

Activity = Literal["start", "use", "operation", "processor", "traffic", "request", "command", "keep_awake"]
Sleep = Literal["paused", "suspended"]

# Usage up to this rate is no work. An idle guest uses 0.3 % of a processor on gVisor, and a daemon that looks
# around each second 0.8 %. A build gets 5 % on a host where twenty programs want two processors.
_IDLE_VCPUS = 0.03
# Heartbeats of open connections leak away. A request with its answer does not.
_IDLE_BYTES_S = 64.0
_REQUEST_BYTES = 256.0
# Processor time counts as work once there is more of it than an idle guest uses in this part of the shortest
# idle time.
_WINDOW_PART, _WINDOW_LEAST_S, _WINDOW_MOST_S = 4, 0.5, 10.0
# A reason that only the guest gives keeps it awake for this long after the last activity that the host saw.
_SAID_MOST_S = 3600.0
# A guest that only traffic has thawed, perhaps a heartbeat, is frozen again after this time.
_THAWED_S = 2.0


class Tiers(NamedTuple):
    """After how many idle seconds a sandbox is paused and suspended; None means never."""

    pause_s: float | None
    suspend_s: float | None

    @property
    def shortest_s(self) -> float | None:
        """The shorter of the two."""
        return min((one for one in self if one is not None), default=None)


NEVER = Tiers(None, None)


def tiers_of(lifecycle: Lifecycle, default: Tiers = NEVER, most_s: float | None = None) -> Tiers:
    """The tiers that a lifecycle asks for.

    Args:
        default: The tiers where the lifecycle names none.
        most_s: After how many idle seconds it is suspended at the latest.
    """
    pause_s, suspend_s = lifecycle.idle_pause_s, lifecycle.idle_suspend_s
    pause_s = default.pause_s if pause_s is None else pause_s or None
    suspend_s = default.suspend_s if suspend_s is None else suspend_s or None
    if most_s is not None:
        suspend_s = most_s if suspend_s is None else min(most_s, suspend_s)
    return Tiers(pause_s, suspend_s)


class Reading(NamedTuple):
    """A machine's usage so far: processor time, and bytes in packets beyond their headers.

    ``cpu_s`` is None if the host does not count it.
    """

    machine_id: str
    cpu_s: float | None
    payload_bytes: int


@dataclass(eq=False, repr=False)
class LeakyBucket:
    """Fills with a guest's usage, and leaks at the rate of an idle guest. A full bucket means work.

    Args:
        leak_s: How much leaks in a second.
    """

    leak_s: float
    _level: float = field(default=0.0, init=False)

    def fills(self, amount: float, passed_s: float, size: float) -> bool:
        """Add the usage of ``passed_s`` seconds. Returns whether that was work, and is then empty again."""
        self._level = max(0.0, self._level + amount - self.leak_s * passed_s)
        if self._level < size:
            return False
        self._level = 0.0
        return True


class Idleness:
    """How idle one sandbox is. Moments are seconds of a clock that stands still while the host sleeps."""

    def __init__(self) -> None:
        self.tiers = NEVER
        self._since_s = 0.0
        self._last: Activity = "start"
        self._processor = LeakyBucket(_IDLE_VCPUS)
        self._traffic = LeakyBucket(_IDLE_BYTES_S)
        self._before: tuple[float, Reading] | None = None
        self._state = ""
        self._ran_s = 0.0
        self._calendar_s: float | None = None
        self._seen_s = 0.0
        self._excused = False
        self.is_worked_on = False
        self._awake_until_s = 0.0
        self._said_until_s = 0.0

    def note(self, now_s: float, activity: Activity) -> None:
        """Note an activity."""
        self._since_s, self._last = now_s, activity
        self._seen_s = now_s

    def keep_awake(self, now_s: float, until_s: float) -> None:
        """Have it count as active until then at a client's wish, which replaces any earlier wish."""
        self.note(now_s, "keep_awake")
        self._awake_until_s = until_s

    def said(self, now_s: float, awake_s: float, waiting: int) -> bool:
        """Heed the guest's own reasons, in bounds. Returns whether it is to stay awake for them.

        Args:
            awake_s: How long a program inside wants it to stay awake.
            waiting: How many commands clients wait for.
        """
        left_s = self._seen_s + _SAID_MOST_S - now_s
        if left_s <= 0 or (awake_s <= 0 and not waiting):
            return False
        self._since_s, self._last = now_s, "command" if waiting else "keep_awake"
        self._said_until_s = now_s + min(left_s, max(0.0, awake_s))
        return True

    @contextmanager
    def unnoticed(self) -> Iterator[None]:
        """Mark the block as an operation that no client asked for, and that is no activity."""
        self.is_worked_on = True
        try:
            yield
        finally:
            self.is_worked_on, self._excused = False, True

    def excuse(self, cpu_s: float | None) -> None:
        """Leave out the guest's usage since the last reading, which served the supervisor's own question."""
        if self._before is not None:
            at_s, reading = self._before
            self._before = at_s, reading._replace(cpu_s=cpu_s)

    def look(self, state: str, tiers: Tiers, now_s: float, unix_s: float) -> None:
        """Note the sandbox's state, and its times to sleep."""
        self.tiers, self._calendar_s = tiers, unix_s - now_s
        self.enter(state, now_s)

    def enter(self, state: str, now_s: float) -> None:
        """Note the sandbox's state. Idleness counts only while it is running or paused."""
        if state != self._state:
            self._state, self._ran_s = state, now_s

    def read(self, reading: Reading, now_s: float) -> None:
        """Compare a reading with the one before it. The first reading of a machine counts as its start."""
        before, self._before = self._before, (now_s, reading)
        excused, self._excused = self._excused or self.is_worked_on, self.is_worked_on
        if before is None or before[1].machine_id != reading.machine_id:
            if before is None or not excused:
                self.note(now_s, "start")
            return
        passed_s = now_s - before[0]
        moved = reading.payload_bytes - before[1].payload_bytes
        if self._traffic.fills(moved, passed_s, _REQUEST_BYTES):
            self.note(now_s, "traffic")
        if excused:
            return
        if reading.cpu_s is None or before[1].cpu_s is None:
            self.note(now_s, "processor")  # the usage is unknown, and a silent build must not be stopped
            return
        window_s = min(_WINDOW_MOST_S, max(_WINDOW_LEAST_S, (self.tiers.shortest_s or 0.0) / _WINDOW_PART))
        if self._processor.fills(reading.cpu_s - before[1].cpu_s, passed_s, _IDLE_VCPUS * window_s):
            self.note(now_s, "processor")

    def pauses_s(self) -> float | None:
        """When to pause the sandbox if it stays idle; None means never."""
        pause_s, suspend_s = self.tiers
        if pause_s is None or (suspend_s is not None and suspend_s <= pause_s):
            return None
        return max(self._active_s() + pause_s, self._settles_s())

    def suspends_s(self) -> float | None:
        """When to suspend the sandbox if it stays idle; None means never."""
        if self.tiers.suspend_s is None:
            return None
        return max(self._active_s() + self.tiers.suspend_s, self._settles_s())

    def due(self, state: str, now_s: float) -> Sleep | None:
        """How a sandbox in this state is to sleep now; None leaves it as it is."""
        suspends_s, pauses_s = self.suspends_s(), self.pauses_s()
        if suspends_s is not None and now_s >= suspends_s:
            return "suspended"
        if pauses_s is not None and now_s >= pauses_s and state == "running":
            return "paused"
        return None

    def told(self, state: str) -> Idle | None:
        """The information for clients in this state; None if the sandbox does not sleep by itself."""
        offset_s = self._calendar_s
        if offset_s is None or self.tiers.shortest_s is None or state not in ("running", "paused"):
            return None
        pauses_s, suspends_s = self.pauses_s(), self.suspends_s()
        awake_s = max(self._awake_until_s, self._said_until_s)
        return Idle(
            since=self._since_s + offset_s,
            last=self._last,
            pauses_at=None if pauses_s is None or state == "paused" else pauses_s + offset_s,
            suspends_at=None if suspends_s is None else suspends_s + offset_s,
            awake_until=awake_s + offset_s if awake_s > self._since_s else None,
        )

    def _active_s(self) -> float:
        """When its last activity ends or has ended."""
        return max(self._since_s, self._awake_until_s, self._said_until_s)

    def _settles_s(self) -> float:
        """When a guest that was only thawed has run long enough."""
        return self._ran_s + min(_THAWED_S, self.tiers.pause_s or 0.0)
