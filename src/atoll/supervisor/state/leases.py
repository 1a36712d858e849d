"""Leases: how long sandboxes may run. No tasks and no input or output: only rows, lengths and a heap."""

from __future__ import annotations

import asyncio
import heapq
from dataclasses import dataclass, field
from typing import Any

from atoll.supervisor.state.clock import Clock
from atoll.supervisor.state.rows import LEFT_MOST_S, SandboxRow
from atoll.types import Lifecycle

Columns = dict[str, Any]
NO_LEASE: Columns = {"ends_at": None, "ends_boot_s": None}
NOT_LEFT: Columns = {"left_at": None, "left_boot_s": None}
# A sandbox whose last client has left it behind sleeps after this time, and is erased after the other one.
LEFT_SLEEP_S = 60.0
# The heap keeps outdated entries until they reach its top.
_SPARE = 64
# A smaller difference is no jump: a clock gains that much while it is being adjusted.
JUMP_S = 1.0


@dataclass(eq=False, repr=False)
class LeaseTable:
    """Holds due times by sandbox id, in seconds of a clock that never jumps. A missing id is never due.

    Attributes:
        sooner: Set when a sandbox becomes due before all others.
    """

    sooner: asyncio.Event = field(default_factory=asyncio.Event, init=False)
    _due_s: dict[str, float] = field(default_factory=dict, init=False)
    _heap: list[tuple[float, str]] = field(default_factory=list, init=False)
    _ending: set[str] = field(default_factory=set, init=False)

    def note(self, row: SandboxRow) -> None:
        """Note when a sandbox that is new or has changed is due, unless it is being ended right now."""
        self.set(row.sandbox_id, None if row.sandbox_id in self._ending else due_s(row))

    def begin_end(self, sandbox_id: str) -> None:
        """Note that a sandbox that was due is being ended: until ``end`` it is not due again."""
        self._ending.add(sandbox_id)

    def end(self, sandbox_id: str, due_s: float | None) -> None:
        """Note that ending a sandbox is over, and when it is due again, as it may be if that failed."""
        self._ending.discard(sandbox_id)
        self.set(sandbox_id, due_s)

    def set(self, sandbox_id: str, due_s: float | None) -> None:
        """Set when a sandbox is due, replacing its earlier time; None means never."""
        if due_s is None:
            self._due_s.pop(sandbox_id, None)
        elif self._due_s.get(sandbox_id) != due_s:
            self._due_s[sandbox_id] = due_s
            heapq.heappush(self._heap, (due_s, sandbox_id))
            if self.next_s() == due_s:
                self.sooner.set()
        if len(self._heap) > 2 * len(self._due_s) + _SPARE:
            self._heap = [(due_s, sandbox_id) for sandbox_id, due_s in self._due_s.items()]
            heapq.heapify(self._heap)

    def next_s(self) -> float | None:
        """When the next sandbox is due; None if there is none."""
        while self._heap and self._due_s.get(self._heap[0][1]) != self._heap[0][0]:
            heapq.heappop(self._heap)
        return self._heap[0][0] if self._heap else None

    def take(self, now_s: float) -> list[str]:
        """Remove and return the sandboxes that are due, the earliest first."""
        due = []
        while (next_s := self.next_s()) is not None and next_s <= now_s:
            _, sandbox_id = heapq.heappop(self._heap)
            del self._due_s[sandbox_id]
            due.append(sandbox_id)
        return due


@dataclass(eq=False, repr=False)
class Leases:
    """Computes the lease columns of rows."""

    clock: Clock

    def born(self, row: SandboxRow) -> Columns:
        """The columns for a sandbox whose life begins now."""
        now_s = self.clock.boot_s()
        return {
            "host_boot": self.clock.boot,
            "created_boot_s": now_s,
            "started_at": self.clock.unix_s(),
            **self.lasting(row.lifecycle.ttl_s),
        }

    def woken(self, row: SandboxRow, length_s: float | None) -> Columns:
        """The columns for a sandbox that wakes now. A lease that it still has is never shortened.

        A sandbox that was left behind stays from now on, because its waker has use for it.
        """
        columns: Columns = {} if row.state == "paused" else {"started_at": self.clock.unix_s()}
        if row.state != "paused" and row.left_boot_s is not None:
            columns |= {**NOT_LEFT, "is_bound": False}
        if row.ends_boot_s is None:
            return {**columns, **({} if row.state == "paused" else self.lasting(length_s))}
        return {**columns, **({} if length_s is None else self.extended(row, length_s))}

    def extended(self, row: SandboxRow, length_s: float | None) -> Columns:
        """The columns for a running sandbox whose lease is to end ``length_s`` from now.

        A lease that ends later, or never, stays.
        """
        if row.ends_boot_s is None:
            return {}
        wanted = self.lasting(length_s)
        ends_s = wanted["ends_boot_s"]
        return wanted if ends_s is None or ends_s > row.ends_boot_s else {}

    def lasting(self, length_s: float | None) -> Columns:
        """The columns for a lease that ends ``length_s`` from now; None means no lease."""
        if length_s is None:
            return NO_LEASE
        return {"ends_at": self.clock.unix_s() + length_s, "ends_boot_s": self.clock.boot_s() + length_s}

    def rebased(self, row: SandboxRow) -> Columns:
        """The columns for a row written in another boot of the host: only the calendar spans both boots."""
        if row.host_boot == self.clock.boot:
            return {}
        offset_s = self.clock.boot_s() - self.clock.unix_s()
        return {
            "host_boot": self.clock.boot,
            "created_boot_s": row.created_at + offset_s,
            "ends_boot_s": None if row.ends_at is None else row.ends_at + offset_s,
            "left_boot_s": None if row.left_at is None else row.left_at + offset_s,
        }

    def told(self, row: SandboxRow) -> Columns:
        """The calendar times to correct if the calendar has jumped since the row was written.

        These are a lease's end, the moment when it was left, and the beginning of a life that is limited.
        """
        columns: Columns = {}
        offset_s = self.clock.unix_s() - self.clock.boot_s()
        if row.limits.lifetime_s is not None:
            columns["created_at"] = row.created_boot_s + offset_s
        if row.ends_boot_s is not None and row.ends_at is not None:
            columns["ends_at"] = row.ends_boot_s + offset_s
        if row.left_boot_s is not None and row.left_at is not None:
            columns["left_at"] = row.left_boot_s + offset_s
        return {name: at for name, at in columns.items() if abs(at - getattr(row, name)) > JUMP_S}

    def is_over(self, row: SandboxRow) -> bool:
        """Whether a sandbox's lease has ended."""
        return row.ends_boot_s is not None and self.clock.boot_s() >= row.ends_boot_s

    def left_now(self) -> Columns:
        """The columns for a sandbox whose last client leaves it now."""
        return {"left_at": self.clock.unix_s(), "left_boot_s": self.clock.boot_s()}

    def sleeps(self, row: SandboxRow) -> bool:
        """Whether a sandbox was left behind long enough to sleep."""
        return row.left_boot_s is not None and self.clock.boot_s() >= row.left_boot_s + LEFT_SLEEP_S

    def has_lived(self, row: SandboxRow) -> bool:
        """Whether a sandbox's lifetime has ended, or it was left behind for too long."""
        ends = [end for end in (_life_ends_s(row), _erased_s(row)) if end is not None]
        return bool(ends) and self.clock.boot_s() >= min(ends)


def length_after_use(lifecycle: Lifecycle) -> float | None:
    """The length of the lease that begins when a sandbox is woken by use."""
    return lifecycle.ttl_s if lifecycle.wake_ttl_s is None else lifecycle.wake_ttl_s


def due_s(row: SandboxRow) -> float | None:
    """When a sandbox's lease or lifetime ends, or its erasure is due. The first counts; None means never."""
    if row.state == "killed":
        return None
    ends = [row.ends_boot_s, _life_ends_s(row), _erased_s(row)]
    if row.left_boot_s is not None and row.state in ("running", "paused"):
        ends.append(row.left_boot_s + LEFT_SLEEP_S)
    return min((end for end in ends if end is not None), default=None)


def _life_ends_s(row: SandboxRow) -> float | None:
    lifetime_s = row.limits.lifetime_s
    return None if lifetime_s is None else row.created_boot_s + lifetime_s


def _erased_s(row: SandboxRow) -> float | None:
    return None if row.left_boot_s is None else row.left_boot_s + LEFT_MOST_S
