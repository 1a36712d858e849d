"""Measuring: rounds, medians and what a number is held against."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass

WARM_UP_ROUNDS = 2


@dataclass(frozen=True, kw_only=True)
class Number:
    """A measured number beside its promise.

    Args:
        name: As it stands in SPECIFICATION.md.
        measured: The median, in ``unit``.
        promise: It should be at most this; None promises no absolute number.
        reference_name: What it is compared with.
        reference: The median of that, in the same run.
        most_ratio: The measured number should be at most so many times the reference.
    """

    name: str
    measured: float
    unit: str = "ms"
    promise: float | None = None
    reference_name: str = ""
    reference: float | None = None
    most_ratio: float | None = None

    @property
    def ratio(self) -> float | None:
        """The measured number in terms of the reference."""
        return self.measured / self.reference if self.reference else None

    @property
    def kept(self) -> bool:
        """Whether every promise about it is kept here."""
        ratio_kept = self.most_ratio is None or (self.ratio or math.inf) <= self.most_ratio
        return ratio_kept and (self.promise is None or self.measured <= self.promise)


def median_ms(
    action: Callable[[], object], rounds: int, *, between: Callable[[], object] | None = None
) -> float:
    """Return the median time of ``action`` in milliseconds; ``between`` is called after each round, untimed."""
    times = []
    for _ in range(WARM_UP_ROUNDS + rounds):
        began = time.perf_counter()
        action()
        times.append(time.perf_counter() - began)
        if between is not None:
            between()
    return statistics.median(times[WARM_UP_ROUNDS:]) * 1000
