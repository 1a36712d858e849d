"""Decides when the supervisor exits by itself."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

import msgspec


class Activity(msgspec.Struct, frozen=True, kw_only=True):
    """The supervisor's current activity. ``asked_at_s`` is the time of the last client request."""

    states: tuple[str, ...]
    clients: int
    busy: bool
    asked_at_s: float


def may_leave(activity: Activity, *, now_s: float, idle_exit_s: float) -> bool:
    """Whether nothing runs and no client has asked for anything for ``idle_exit_s`` seconds."""
    if (
        activity.busy
        or activity.clients
        or any(state in ("running", "paused", "creating") for state in activity.states)
    ):
        return False
    return now_s - activity.asked_at_s >= idle_exit_s


def may_end_holder(states: Iterable[str]) -> bool:
    """Whether nothing needs the home's namespaces: suspended sandboxes do not."""
    return not any(state in ("running", "paused", "creating") for state in states)


@dataclass(eq=False, repr=False)
class Keeper:
    """Notes the activity of clients, and tells when the supervisor may exit.

    Args:
        idle_exit_s: Seconds of idleness before it exits.
        look: Returns the states of the sandboxes, the number of clients, and whether an operation is going
            on.
        clock: Returns monotonic seconds.
    """

    idle_exit_s: float
    look: Callable[[], tuple[tuple[str, ...], int, bool]]
    clock: Callable[[], float] = time.monotonic
    _asked_at_s: float = field(init=False)

    def __post_init__(self) -> None:
        self._asked_at_s = self.clock()

    def note(self) -> None:
        """Note a client request."""
        self._asked_at_s = self.clock()

    def may_leave(self) -> bool:
        """Whether the supervisor may exit now."""
        states, clients, busy = self.look()
        if clients or busy or not may_end_holder(states):
            self.note()
        activity = Activity(states=states, clients=clients, busy=busy, asked_at_s=self._asked_at_s)
        return may_leave(activity, now_s=self.clock(), idle_exit_s=self.idle_exit_s)

    async def until_idle(self) -> None:
        """Return when the supervisor may exit. Its own start does not count as idleness."""
        self.note()
        pause_s = min(1.0, max(0.05, self.idle_exit_s / 10))
        while not self.may_leave():  # noqa: ASYNC110 - what it looks at has no event
            await asyncio.sleep(pause_s)
