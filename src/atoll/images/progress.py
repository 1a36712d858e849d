"""Reads from mmdebstrap's output how far a build has come."""

from __future__ import annotations

import re

from atoll.types import Progress

_COUNT = re.compile(r"^\d+ upgraded, (?P<count>\d+) newly installed")
_ROUND = re.compile(r"^I: (?P<what>downloading packages|installing remaining packages)")
_STEPS = (
    (re.compile(r"^Get:\d+ \S+ \S+ \S+ \S+ \S+ \S+ \["), "downloading packages", 1.0),
    (re.compile(r"^Unpacking \S+ \("), "installing packages", 0.5),
    (re.compile(r"^Setting up \S+ \("), "installing packages", 0.5),
)
_PLAIN = (
    (re.compile(r"^I: running apt-get update"), "reading the package lists"),
    (re.compile(r"^I: extracting archives"), "extracting the first packages"),
    (re.compile(r"^I: cleaning package lists"), "finishing"),
)


class BuildProgress:
    """Turns lines of output into reports. A build installs in two rounds, so each step of a round counts
    anew.
    """

    def __init__(self) -> None:
        self._total = 0.0
        self._done: dict[str, float] = {}

    def feed(self, line: str) -> Progress | None:
        """What this line tells, or None when it tells nothing new."""
        if counted := _COUNT.match(line):
            self._total = float(counted["count"])
        elif _ROUND.match(line):
            self._total, self._done = 0, {}
        for pattern, step in _PLAIN:
            if pattern.match(line):
                return Progress(step=step)
        for pattern, step, share in _STEPS:
            if pattern.match(line) and self._total:
                self._done[step] = min(self._done.get(step, 0.0) + share, self._total)
                return Progress(step=step, done=self._done[step], total=self._total, unit="packages")
        return None
