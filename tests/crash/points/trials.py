"""Trials: an operation is begun again and again, and the supervisor dies right before its first step, its second, …"""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from tests import homes
from tests.crash.points.points import Points, watched
from tests.crash.rounds import Rounds

# An operation and the state in which it finds the sandbox.
OPERATIONS = (
    ("wake", "suspended"),
    ("suspend", "running"),
    ("suspend", "paused"),
    ("pause", "running"),
    ("resume", "paused"),
    ("stop", "running"),
    ("snapshot", "running"),
    ("snapshot", "suspended"),
    ("fork", "running"),
    ("fork", "suspended"),
    ("freeze", "running"),
    ("rollback", "running"),
    ("rollback", "suspended"),
    ("promote", "running"),
    ("promote", "suspended"),
    ("from_snapshot", "running"),
    ("forget", "running"),
    ("create", "running"),
    ("kill", "running"),
    ("kill", "suspended"),
    ("volume", "running"),
    ("build", "running"),
    ("merge", "suspended"),
)


@dataclass
class Outcome:
    """What came of the trials of one operation: how many points it has, how many were tried, and which failed."""

    operation: str
    state: str
    points: int = 0
    tried: int = 0
    failures: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        return (
            f"{self.operation:14}{self.state:10}{self.points:6} points{self.tried:6} tried"
            f"{len(self.failures):6} failed"
        )


class Trials:
    """Plays trials in a home of its own, and a new one after each failure, which may have left anything.

    Args:
        scratch: Where the shim is compiled.
    """

    def __init__(self, scratch: Path) -> None:
        self._scratch = scratch
        self._stack = contextlib.ExitStack()
        self._rounds: Rounds | None = None
        self._points: Points | None = None

    def close(self) -> None:
        """Let nothing be left."""
        rounds, self._rounds = self._rounds, None
        if rounds is not None:
            rounds.close()
        self._stack.close()

    def all_of(self, operation: str, state: str) -> Iterator[Outcome]:
        """Try every point of an operation, in order, until it comes to its end; gives what is known after each."""
        outcome = Outcome(operation, state)
        fired = True
        while fired:
            fired = self._try(outcome, outcome.tried + 1)
            outcome.points = max(outcome.points, outcome.tried)
            yield outcome

    def new_kinds_of(self, operation: str, state: str, seen: set[str], most: int) -> Outcome:
        """Try the points of an operation whose step is of a kind that was not ``seen`` yet, at most so many."""
        outcome = Outcome(operation, state)
        self._try(outcome, 0)
        if self._points is None:  # it failed without a death, and its home is gone
            return outcome
        steps = self._points.steps()
        outcome.points, outcome.tried = len(steps), 0
        for number in _chosen(steps, seen, most):
            self._try(outcome, number)
        return outcome

    def _try(self, outcome: Outcome, step: int) -> bool:
        rounds, points = self._ready()
        outcome.tried += 1
        try:
            return rounds.play_point(outcome.operation, outcome.state, points, step)
        except AssertionError as error:
            outcome.failures.append(str(error))
            fired = points.has_fired
            self._give_up()
            return fired

    def _ready(self) -> tuple[Rounds, Points]:
        if self._rounds is None or self._points is None:
            home = self._stack.enter_context(homes.make_home("ap-"))
            scratch = Path(tempfile.mkdtemp(dir=self._scratch))
            self._points = self._stack.enter_context(watched(home, scratch))
            self._rounds = Rounds(home, seed=0)
        return self._rounds, self._points

    def _give_up(self) -> None:
        """Empty the home as far as it can be, for what failed may have left something that stays."""
        with contextlib.suppress(Exception):  # the failure that was noted is the one to tell
            self.close()
        self._points = None
        self._stack = contextlib.ExitStack()


def _chosen(steps: list[str], seen: set[str], most: int) -> Collection[int]:
    chosen: list[int] = []
    for number, step in enumerate(steps, 1):
        if step not in seen and len(chosen) < most:
            chosen.append(number)
            seen.add(step)
    return chosen
