"""Reads the progress of a build from mmdebstrap's output."""

from __future__ import annotations

import re

from atoll.types import Progress

_COUNT = re.compile(r"^\d+ upgraded, (?P<count>\d+) newly installed")
_ROUNDS = (
    (re.compile(r"^I: downloading packages"), "first"),
    (re.compile(r"^I: installing remaining packages"), "other"),
)
_STEPS = (
    (re.compile(r"^Get:\d+ \S+ \S+ \S+ \S+ \S+ \S+ \["), "downloading the {} packages", 1.0),
    (re.compile(r"^Unpacking \S+ \("), "installing the {} packages", 0.5),
    (re.compile(r"^Setting up \S+ \("), "installing the {} packages", 0.5),
)
_PLAIN = (
    (re.compile(r"^I: running apt-get update"), "reading the package lists"),
    (re.compile(r"^I: extracting archives"), "extracting the first packages"),
    (re.compile(r"^I: cleaning package lists"), "finishing"),
)
# The start and end of each step, as fractions of a build's time on 2 idle cores.
_SPANS = {
    "reading the package lists": (0.0, 0.05),
    "downloading the first packages": (0.05, 0.09),
    "extracting the first packages": (0.09, 0.2),
    "installing the first packages": (0.2, 0.4),
    "downloading the other packages": (0.4, 0.45),
    "installing the other packages": (0.45, 0.97),
    "finishing": (0.97, 1.0),
}


class BuildProgress:
    """Turns lines of output into reports.

    A build installs in two rounds, and each counts its own packages.
    """

    def __init__(self) -> None:
        self._round = "first"
        self._total = 0.0
        self._done: dict[str, float] = {}
        self._whole = 0.0

    def feed(self, line: str) -> Progress | None:
        """Return the progress that this line shows, or None if it shows nothing new."""
        if counted := _COUNT.match(line):
            self._total = float(counted["count"])
        for pattern, name in _ROUNDS:
            if pattern.match(line):
                self._round, self._total = name, 0.0
        for pattern, step in _PLAIN:
            if pattern.match(line):
                return Progress(step=step, whole=self._reached(step, 0.0))
        for pattern, template, share in _STEPS:
            if pattern.match(line) and self._total:
                step = template.format(self._round)
                done = min(self._done.get(step, 0.0) + share, self._total)
                self._done[step] = done
                whole = self._reached(step, done / self._total)
                return Progress(step=step, done=done, total=self._total, unit="packages", whole=whole)
        return None

    def _reached(self, step: str, share: float) -> float:
        begin, end = _SPANS[step]
        self._whole = max(self._whole, begin + share * (end - begin))
        return round(self._whole, 4)
